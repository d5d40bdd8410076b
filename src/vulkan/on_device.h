#pragma once

#include <memory>

#include "vulkan/device.h"
#include "vulkan/self_test.h"
#include "vulkan/vulkan_backend.h"

namespace dllm::vulkan {

/// make_vulkan_backend() on a device that is open and has passed the self-test. Several backends may share it, one pass
/// at a time.
Expected<std::unique_ptr<VulkanBackend>> make_backend_on(std::shared_ptr<Device> device, const Arithmetic& arithmetic,
                                                         ModelDesc desc, GraphFactory graph, Weights weights,
                                                         const VulkanOptions& options);

}  // namespace dllm::vulkan
