#pragma once

#include <cstdint>
#include <iterator>
#include <optional>

#include "cpu/kernels/packed.h"
#include "numerics/tensor_type.h"

// How shaders and kernels number what panels hold; nothing: they do not have it.

namespace dllm::vulkan {

/// As shaders/codes.glsl numbers codes. Shaders are given the size of a group by another number, so kE2M1Halves has the
/// number of kE2M1. Codes that are places in a table have the number of the table.
constexpr std::optional<std::uint32_t> code_number(const cpu::PackedFormat& format) {
  constexpr cpu::Codes kOrder[] = {cpu::Codes::kTwoBits, cpu::Codes::kThreeBits, cpu::Codes::kNibble,
                                   cpu::Codes::kNibble5, cpu::Codes::kNibble6,   cpu::Codes::kByte,
                                   cpu::Codes::kE2M1,    cpu::Codes::kIq4};
  constexpr cpu::Values kTables[] = {cpu::Values::kIq1, cpu::Values::kIq2, cpu::Values::kIq3Xxs, cpu::Values::kIq3S};
  if (cpu::listed(format.codes)) {
    for (std::uint32_t i = 0; i < std::size(kTables); ++i)
      if (kTables[i] == format.values) return static_cast<std::uint32_t>(std::size(kOrder)) + i;
    return std::nullopt;
  }
  const cpu::Codes codes = format.codes == cpu::Codes::kE2M1Halves ? cpu::Codes::kE2M1 : format.codes;
  for (std::uint32_t i = 0; i < std::size(kOrder); ++i)
    if (kOrder[i] == codes) return i;
  return std::nullopt;
}

/// As shaders/codes.glsl and cuda/product.cuh number scales.
constexpr std::optional<std::uint32_t> scale_number(cpu::Scales scales) {
  constexpr cpu::Scales kOrder[] = {cpu::Scales::kHalf, cpu::Scales::kSuper, cpu::Scales::kSuperPairs,
                                    cpu::Scales::kExponent};
  for (std::uint32_t i = 0; i < std::size(kOrder); ++i)
    if (kOrder[i] == scales) return i;
  return std::nullopt;
}

/// As shaders/linear_floats.comp numbers F32, F16 and BF16.
constexpr std::uint32_t float_number(TensorType type) {
  return type == TensorType::kF32 ? 0 : type == TensorType::kF16 ? 1 : 2;
}

}  // namespace dllm::vulkan
