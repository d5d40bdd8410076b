#include "vulkan/cuda_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dllm::vulkan {

Expected<std::shared_ptr<const CudaModule>> CudaModule::make(std::shared_ptr<Device> device, std::string_view name) {
  const std::span<const CudaSource> sources = cuda_sources();
  const auto source = std::ranges::find(sources, name, &CudaSource::name);
  if (source == sources.end() || device->cuda_calls() == nullptr)
    return Error{ErrorCode::kUnsupported, fmt::format("no CUDA kernels '{}' here", name), "--backend vulkan", ""};
  auto info = structure<VkCuModuleCreateInfoNVX>(VK_STRUCTURE_TYPE_CU_MODULE_CREATE_INFO_NVX);
  info.dataSize = source->ptx.size();
  info.pData = source->ptx.data();
  const std::shared_ptr<CudaModule> module(new CudaModule);
  module->device_ = std::move(device);
  const Device& on = *module->device_;
  const VkResult made = on.cuda_calls()->CreateCuModuleNVX(on.handle(), &info, nullptr, &module->handle_);
  if (made != VK_SUCCESS) return call_failed(made, fmt::format("the CUDA kernels '{}'", name));
  return std::shared_ptr<const CudaModule>(module);
}

CudaModule::~CudaModule() {
  if (handle_ != VK_NULL_HANDLE) device_->cuda_calls()->DestroyCuModuleNVX(device_->handle(), handle_, nullptr);
}

}  // namespace dllm::vulkan
