#pragma once

#include <cstdint>

namespace dllm::vulkan {

/// Most passes in a row. Here, for those that include no header of Vulkan.
inline constexpr std::int32_t kMostUnrolled = 16;

}  // namespace dllm::vulkan
