// Instead of the other sandbox*.cpp in builds without the sandbox, and on systems without Linux's namespaces.
#include "eval/sandbox.h"

namespace dllm {

Expected<SandboxResult> run_python(const std::string&, const std::string&, const SandboxOptions&) {
  return Error{ErrorCode::kUnsupported, "this build cannot run code that a model wrote", "--run-code",
               "use a build for Linux with the CMake option DLLM_SANDBOX=ON, which is the default there"};
}

}  // namespace dllm
