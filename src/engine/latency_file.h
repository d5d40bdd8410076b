#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "backend/measure_latency.h"
#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "dllm/model.h"

namespace dllm {

/// What a latency table depends on. Any difference means another measurement.
struct LatencyKey {
  std::string model;  ///< path, as given
  std::uint64_t model_size = 0, model_stamp = 0;
  std::string cpu;  ///< name of the processor
  std::string isa;
  std::string kv_type;
  std::string activations;
  std::int32_t threads = 0;
  std::string version;  ///< of dllm: other kernels, other times
};

/// The key of the model at `model` (empty: the embedded one) on this backend and machine.
LatencyKey latency_key(const std::string& model, const LoadOptions& load, const CpuBackend& backend);

/// $XDG_CACHE_HOME/dllm, or ~/.cache/dllm; empty if neither variable is set.
std::string latency_directory(const char* xdg_cache_home, const char* home);

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

/// The table of a file that latency_table() wrote, whatever key it was measured under: the same decisions on another
/// machine. Errors: kIo, kInvalidFile.
Expected<LatencyTable> read_latency_file(const std::string& path);

/// The table that a request names (GenerateOptions::latency): a file's, or for "auto" the one kept for `key`, measured
/// if there is none.
Expected<LatencyTable> requested_latency(const std::string& name, Backend& backend, const LatencyKey& key,
                                         const Log& log, std::stop_token stop);

}  // namespace dllm
