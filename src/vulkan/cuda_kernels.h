#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "dllm/error.h"
#include "vulkan/device.h"

// Kernels in CUDA, of which builds have the PTX (src/vulkan/cuda). NVIDIA's driver compiles it for its card and runs it
// among the shaders of a command buffer (VK_NVX_binary_import): memory, order and recordings are Vulkan's. They exist for
// what shaders cannot say: where a matrix operation's operands lie, and copies to shared memory that run beside it. Every
// kernel has the bits of the shader in whose place it runs.

namespace dllm::vulkan {

struct CudaSource {
  std::string_view name;  ///< of the file in src/vulkan/cuda, without ".ptx"
  std::string_view ptx;
};

/// The kernels of this build; a generated source defines it.
std::span<const CudaSource> cuda_sources();

/// One of these, compiled for a device. Kernels made of it must end first.
class CudaModule {
 public:
  /// Errors: kUnsupported (the device runs no PTX, or this build has no such module), kResource.
  static Expected<std::shared_ptr<const CudaModule>> make(std::shared_ptr<Device> device, std::string_view name);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  const std::shared_ptr<Device>& device() const { return device_; }
  VkCuModuleNVX handle() const { return handle_; }

 private:
  CudaModule() = default;

  std::shared_ptr<Device> device_;
  VkCuModuleNVX handle_ = VK_NULL_HANDLE;
};

}  // namespace dllm::vulkan
