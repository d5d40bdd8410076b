#pragma once

#include <memory>

#include "engine/backends.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {

/// A Vulkan backend with what the engine says about it.
RunningBackend run_on_vulkan(std::unique_ptr<VulkanBackend> backend);

}  // namespace dllm
