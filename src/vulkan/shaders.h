#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dllm::vulkan {

/// How a shader computes a fused multiply-add, and with it which of a shader's forms runs.
enum class ShaderForm : std::uint8_t {
  kNative,      ///< by the device's own instruction, with subnormal numbers as they are
  kGuarded,     ///< by the device's own, and by float64 where it would meet subnormal numbers
  kFloat64,     ///< by sums of float64, rounded to odd
  kSubnormals,  ///< likewise, on devices that take subnormal numbers for zeros everywhere: those by their bits
  kIntegers,    ///< by integers, and subnormal numbers by their bits: where no other form is right
};

struct Shader {
  std::string_view name;  ///< of the file in shaders/, without ".comp"
  ShaderForm form;
  std::span<const std::uint32_t> words;  ///< SPIR-V
};

/// The shaders of this build, compiled from shaders/*.comp; a generated source defines it.
std::span<const Shader> shaders();

}  // namespace dllm::vulkan
