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
  bool measured = false;  ///< now, rather than read
};

/// The table of `key` from `directory`, or measured now and kept there. `renew`: measures in any case. A file that is
/// damaged or belongs to another key is replaced; a directory that cannot be written to is a warning. An empty
/// directory: nothing is kept. Errors: those of measure_latency().
Expected<LatencyResult> latency_table(Backend& backend, const LatencyKey& key, const std::string& directory, bool renew,
                                      const LatencyOptions& options, const Log& log);

/// The table of a file that latency_table() wrote, for any key: the same decisions on another
/// machine. Errors: kIo, kInvalidFile.
Expected<LatencyTable> read_latency_file(const std::string& path);

/// Of no machine in particular, so that decisions are the same on all of them, for every thread count and instruction
/// set: a step of n rows costs 4 + n units, the shape of steps that arithmetic bounds, with what does not depend on the
/// rows (a pass's weights and barriers) worth four of them.
LatencyTable nominal_latency();

/// The table that a request names (the window option `latency`): "nominal", a file's, or for "auto" the one of `key`,
/// measured if there is none.
Expected<LatencyTable> requested_latency(const std::string& name, Backend& backend, const LatencyKey& key,
                                         const Log& log, std::stop_token stop);

}  // namespace dllm
