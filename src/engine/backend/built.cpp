// The backends of this program, the default one first.
#include <deque>

#include "engine/backends.h"

namespace dllm {

BackendEntry cpu_backend();
BackendEntry npu_backend();
BackendEntry vulkan_backend();
BackendEntry ranks_backend();

std::deque<BackendEntry> built_backends() { return {cpu_backend(), npu_backend(), vulkan_backend(), ranks_backend()}; }

}  // namespace dllm
