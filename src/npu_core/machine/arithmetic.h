#pragma once

#include <bit>
#include <cstdint>

#include "numerics/half.h"

// The scalar and lane arithmetic of the machine: BF16 in, FP32 inside, BF16 out, always rounded to nearest even, with
// subnormals. RTL and other implementations are compared with these functions bit for bit. Devices of the phones' kind
// have FP16 in the place of BF16, with the same rules.

namespace dllm::npu {

/// The bits of a lane or scalar: BF16, or FP16 on machines whose lanes are FP16.
using Bf16 = std::uint16_t;
inline constexpr Bf16 kBf16One = 0x3f80, kBf16Nan = 0x7fc0, kF16One = 0x3c00, kF16Nan = 0x7e00;

/// The numbers of vector SRAM, FP_MEM and the f registers. Built into a device: no instruction changes them.
enum class LaneFormat : std::uint8_t { kBf16, kF16 };

inline float lane_to_f32(LaneFormat format, Bf16 x) {
  return format == LaneFormat::kBf16 ? bf16_to_f32(x) : f16_to_f32(x);
}
inline Bf16 f32_to_lane(LaneFormat format, float x) {
  return format == LaneFormat::kBf16 ? f32_to_bf16(x) : f32_to_f16(x);
}
constexpr Bf16 lane_one(LaneFormat format) { return format == LaneFormat::kBf16 ? kBf16One : kF16One; }
constexpr Bf16 lane_nan(LaneFormat format) { return format == LaneFormat::kBf16 ? kBf16Nan : kF16Nan; }
constexpr Bf16 lane_infinity(LaneFormat format) { return format == LaneFormat::kBf16 ? 0x7f80 : 0x7c00; }
constexpr Bf16 lane_largest(LaneFormat format) { return format == LaneFormat::kBf16 ? 0x7f7f : 0x7bff; }
/// `value` as float, truncated, with its last bit set if inexact (round to odd): rounding the result to fewer bits
/// equals rounding `value` (this needs two extra bits; float has 16 more than BF16, 13 more than FP16).
float to_odd_float(double value);
/// What programs multiply the squares of an RMSNorm by. In FP16 squares above 65,504 would be infinite, and so would
/// their sum when the scalar unit reads it: with 2^-6, values up to 2047 are safe, and rows of n lanes up to a root
/// mean square of 2047 / sqrt(n). Smaller factors would lose the squares of small rows.
constexpr float norm_shrink(LaneFormat format) { return format == LaneFormat::kBf16 ? 1.0f : 0x1p-6f; }
/// A power of two by which rows are multiplied before n of them are added for a mean: the sum is then no larger than
/// the largest. BF16 has room enough.
constexpr float mean_shrink(LaneFormat format, std::int64_t n) {
  float shrink = 1;
  for (std::int64_t covered = 1; format == LaneFormat::kF16 && covered < n; covered *= 2) shrink /= 2;
  return shrink;
}
/// The reciprocal of the smallest distance from the centre that smoothing (device/smoothing.h) divides by.
constexpr float smoothing_scale(LaneFormat format) { return format == LaneFormat::kBf16 ? 0x1p60f : 0x1p14f; }
constexpr Bf16 lane_negated(Bf16 x) { return x ^ 0x8000u; }

/// One rounding from double (f32_to_bf16 of a float would round twice).
Bf16 f64_to_bf16(double value);
Bf16 f64_to_lane(LaneFormat format, double value);

/// e^x with x clamped to [-88, 88], correctly rounded. exp(-inf) is e^-88, exp(NaN) is NaN.
Bf16 bf16_exp(Bf16 x);
Bf16 bf16_reciprocal(Bf16 x);  ///< correctly rounded; 1/0 is an infinity of the zero's sign
Bf16 bf16_sqrt(Bf16 x);        ///< correctly rounded; NaN below zero
Bf16 f16_exp(Bf16 x);          ///< the same in FP16
Bf16 f16_reciprocal(Bf16 x);
Bf16 f16_sqrt(Bf16 x);

/// The rounded result of an operation. Every NaN becomes kBf16Nan: sign and payload of a host's NaN depend on its
/// instruction set and on the order in which the compiler passes the operands.
inline Bf16 result_to_bf16(float result) { return result != result ? kBf16Nan : f32_to_bf16(result); }

inline Bf16 result_to_f16(float result) { return result != result ? kF16Nan : f32_to_f16(result); }
inline Bf16 result_to_lane(LaneFormat format, float result) {
  return format == LaneFormat::kBf16 ? result_to_bf16(result) : result_to_f16(result);
}

inline Bf16 bf16_add(Bf16 a, Bf16 b) { return result_to_bf16(bf16_to_f32(a) + bf16_to_f32(b)); }
inline Bf16 bf16_sub(Bf16 a, Bf16 b) { return result_to_bf16(bf16_to_f32(a) - bf16_to_f32(b)); }
inline Bf16 bf16_mul(Bf16 a, Bf16 b) { return result_to_bf16(bf16_to_f32(a) * bf16_to_f32(b)); }
inline Bf16 f16_add(Bf16 a, Bf16 b) { return result_to_f16(f16_to_f32(a) + f16_to_f32(b)); }
inline Bf16 f16_sub(Bf16 a, Bf16 b) { return result_to_f16(f16_to_f32(a) - f16_to_f32(b)); }
inline Bf16 f16_mul(Bf16 a, Bf16 b) { return result_to_f16(f16_to_f32(a) * f16_to_f32(b)); }

/// Unsigned keys with the order of the numbers; both zeros have the same key, NaNs are beyond the infinities of their
/// sign. The order is total, so that maxima do not depend on the order of lanes. Keys of FP16 are the same.
inline std::uint16_t order_key(Bf16 x) {
  if (x == 0x8000u) x = 0;
  return static_cast<std::uint16_t>((x & 0x8000u) != 0 ? ~x : x | 0x8000u);
}
inline Bf16 bf16_max(Bf16 a, Bf16 b) { return order_key(b) > order_key(a) ? b : a; }
inline Bf16 bf16_min(Bf16 a, Bf16 b) { return order_key(b) < order_key(a) ? b : a; }

/// x >> shift, with the lowest bit set if a bit was lost (round to odd: a later rounding to fewer bits is then right).
inline std::int64_t shift_right_sticky(std::int64_t x, std::int64_t shift) {
  if (shift <= 0) return x;
  if (shift > 62) return x == 0 ? 0 : (x < 0 ? -1 : 1);
  const std::int64_t result = x >> shift;
  return (result << shift) == x ? result : result | 1;
}

/// value * 2^exponent, one rounding.
Bf16 fixed_to_lane(LaneFormat format, std::int64_t value, int exponent);
inline Bf16 fixed_to_bf16(std::int64_t value, int exponent) {
  return fixed_to_lane(LaneFormat::kBf16, value, exponent);
}
float fixed_to_f32(std::int64_t value, int exponent);

}  // namespace dllm::npu
