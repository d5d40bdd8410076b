#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "npu_core/machine/arithmetic.h"
#include "numerics/half.h"

// The vector unit's operations on lanes in float32: each computes in float32 and rounds once to the profile's
// precision. With kBF16 they equal those of machine/arithmetic.h, bit for bit (NaNs have no payload here).

namespace dllm::npu::accuracy {

enum class VectorPrecision : std::uint8_t { kF32, kF16, kBF16 };

std::string_view precision_name(VectorPrecision precision);  ///< "f32", "f16", "bf16"

/// Numbers that F16 represents with all 11 bits, and that do not round to its infinity.
inline bool normal_f16(float magnitude) { return magnitude >= 0x1p-14f && magnitude < 65520.0f; }

/// f16_to_f32(f32_to_f16(value)); the usual values stay in float32's format.
inline float round_f16(float value) {
  if (!normal_f16(value < 0 ? -value : value)) return f16_to_f32(f32_to_f16(value));
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) >> 13 << 13);
}

/// One rounding to nearest even.
inline float round_to(VectorPrecision precision, float value) {
  if (precision == VectorPrecision::kF32) return value;
  return precision == VectorPrecision::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : round_f16(value);
}
float round_rare_double(VectorPrecision precision, double value);
inline float round_to(VectorPrecision precision, double value) {
  if (precision == VectorPrecision::kF32) return static_cast<float>(value);
  // Within the precision's normal range, the double can be rounded to its 8 or 11 bits; float32 represents the result.
  const double magnitude = value < 0 ? -value : value;
  const bool half = precision == VectorPrecision::kF16;
  if (!(half ? magnitude >= 0x1p-14 && magnitude < 65520 : magnitude > 0x1p-126 && magnitude < 0x1p127))
    return round_rare_double(precision, value);
  const int dropped = half ? 42 : 45;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  bits += (std::uint64_t{1} << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return static_cast<float>(std::bit_cast<double>(bits >> dropped << dropped));
}

/// round_to(), for the loops of lane_kernel.h.
float round_rare_float(VectorPrecision precision, float value);

float vector_exp(VectorPrecision precision, float x);  ///< the argument is clamped to [-88, 88]
float vector_reciprocal(VectorPrecision precision, float x);
float vector_sqrt(VectorPrecision precision, float x);

/// The larger one; a NaN is larger than any number, and of equal values the first is kept.
inline float vector_max(float a, float b) { return b > a || (b != b && a == a) ? b : a; }

/// Rounds every lane. Each loop that calls it models one instruction.
void round_lanes(VectorPrecision precision, std::span<float> lanes);
void exp_lanes(VectorPrecision precision, std::span<float> lanes);  ///< lanes are numbers of the precision
void reciprocal_lanes(VectorPrecision precision, std::span<float> lanes);

/// running + the sum of adjacent pairs, level by level, in float32: V_RED_SUM. The lanes beyond the span, up to a power
/// of two, are zeros, so a shorter span of a unit's row has the same sum as the whole row.
float sum_tree(std::span<const float> lanes, float running);

}  // namespace dllm::npu::accuracy
