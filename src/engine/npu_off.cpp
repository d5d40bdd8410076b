// Instead of backend/npu.cpp, backend/numerics.cpp, virtual_time.cpp and timed_pass_runner.cpp in builds without
// simulated NPUs. The name stays known, so that asking for it says what is missing.
#include "base/try.h"
#include "engine/backend/numerics.h"
#include "engine/backends.h"
#include "engine/load_options.h"
#include "engine/no_npu.h"
#include "engine/virtual_time.h"

namespace dllm {

BackendEntry npu_backend() {
  return {
      "npu", "a simulated NPU, which this build does not have",
      [](const Model&, const std::string&, const LoadOptions& options, const Log&) -> Expected<RunningBackend> {
        DLLM_CHECK_OK(check_load(options, options.npu_values == "machine" ? Computer::kMachine : Computer::kExecutor));
        return no_npu("--backend npu");
      }};
}

Expected<RunningBackend> run_in_numerics(const Model&, const std::string&, const LoadOptions& options) {
  DLLM_CHECK_OK(check_load(options, Computer::kNumerics));
  return no_npu("--numerics");
}

// No backend of this build has a clock.
VirtualTime virtual_time(const RunningBackend&, const Generation&) { return {}; }
void reset_clock(const RunningBackend&) {}
Expected<LatencyTable> device_latency(const RunningBackend&) { return no_npu("--latency-table auto"); }

}  // namespace dllm
