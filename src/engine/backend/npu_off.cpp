// Instead of npu.cpp, npu_clock.cpp and numerics.cpp in builds without simulated NPUs. The names stay known, so that
// asking for them says what is missing.
#include "base/try.h"
#include "engine/backend/no_npu.h"
#include "engine/backend/numerics.h"
#include "engine/backends.h"
#include "engine/load_options.h"

namespace dllm {

BackendEntry npu_backend() {
  BackendEntry entry{"npu", "a simulated NPU"};
  entry.missing = no_npu("").hint;
  return entry;
}

Expected<RunningBackend> run_in_numerics(const Model&, const std::string&, const LoadOptions& options) {
  DLLM_CHECK_OK(check_load(options, numerics_reader()));
  return no_npu("--numerics");
}

}  // namespace dllm
