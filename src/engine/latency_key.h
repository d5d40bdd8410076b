#pragma once

#include <cstdint>
#include <string>

namespace dllm {

/// What a latency table depends on. If any of it differs, the table is measured again.
struct LatencyKey {
  std::string model;  ///< path, as given
  std::uint64_t model_size = 0, model_stamp = 0;
  std::string cpu;  ///< name of the processor
  std::string isa;
  std::string kv_type;
  std::string activations;
  std::string arithmetic;
  std::int32_t threads = 0;
  std::string version;  ///< of dllm: other kernels have other times
};

}  // namespace dllm
