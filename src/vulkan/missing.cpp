// The backend in a static program, and in a build that has neither Vulkan's headers nor a compiler of shaders.
#include "dllm/version.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

Error not_built() {
  return {ErrorCode::kUnsupported, "this build has no Vulkan backend", "--backend vulkan",
          std::string(vulkan_missing())};
}

}  // namespace

bool has_vulkan() { return false; }
std::string_view vulkan_missing() {
#ifdef DLLM_STATIC_PROGRAM
  return "a static program loads no driver: take the portable one, dllm-" DLLM_VERSION "-linux-*-portable.tar.xz";
#else
  return "install libvulkan-dev and glslc, and build again";
#endif
}

Expected<std::vector<VulkanDevice>> vulkan_devices() { return not_built(); }

Expected<std::function<Expected<cpu::Peaks>()>> vulkan_peaks(const std::string&) { return not_built(); }

Expected<void> check_vulkan_device(const std::string&) { return not_built(); }

Expected<std::unique_ptr<VulkanBackend>> make_vulkan_backend(ModelDesc, GraphFactory, Weights, VulkanOptions) {
  return not_built();
}

}  // namespace dllm
