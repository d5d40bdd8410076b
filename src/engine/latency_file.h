#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "backend/measure_latency.h"
#include "base/log.h"
#include "dllm/error.h"
#include "engine/latency_key.h"

namespace dllm {

struct LatencyResult {
  LatencyTable table;
  std::string path;       ///< of the file; empty without a directory
  bool measured = false;  ///< measured now rather than read
};

/// The table of `key` from `directory`, or measured now and stored there. `renew`: always measures. A file that is
/// damaged or has another key is replaced; a directory that cannot be written is a warning. Empty directory: nothing is
/// stored. Errors: those of measure_latency().
Expected<LatencyResult> latency_table(Backend& backend, const LatencyKey& key, const std::string& directory, bool renew,
                                      const LatencyOptions& options, const Log& log);

/// The table in a file that latency_table() wrote, for any key, so that another machine can make the same decisions.
/// Errors: kIo, kInvalidFile.
Expected<LatencyTable> read_latency_file(const std::string& path);

/// A table that depends on no machine, so that decisions are the same on all of them, for every thread count and
/// instruction set: a step of n rows costs 4 + n units. This is the shape of compute-bound steps, whose fixed part (a
/// pass's weights and barriers) costs as much as four rows.
LatencyTable nominal_latency();

/// The table that a request names (the window option `latency`): "nominal", a file, or for "auto" that of `key`,
/// measured if necessary.
Expected<LatencyTable> requested_latency(const std::string& name, Backend& backend, const LatencyKey& key,
                                         const Log& log, std::stop_token stop);

}  // namespace dllm
