#include "npu_core/machine/arithmetic.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dllm::npu {
namespace {

/// Integers of more than 53 bits, rounded to odd, so that the conversion to double is exact.
std::pair<std::int64_t, int> narrow(std::int64_t value, int exponent) {
  const int width = 64 - std::countl_zero(static_cast<std::uint64_t>(value < 0 ? ~value : value));
  const int excess = std::max(0, width - 53);
  return {shift_right_sticky(value, excess), exponent + excess};
}

using Table = std::array<Bf16, 65536>;

Table tabulate(LaneFormat format, double (*function)(double)) {
  const std::uint32_t quiet = format == LaneFormat::kBf16 ? 0x40u : 0x200u;
  Table table;
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) {
    const float x = lane_to_f32(format, static_cast<Bf16>(bits));
    table[bits] =
        std::isnan(x) ? static_cast<Bf16>(bits | quiet) : f64_to_lane(format, function(static_cast<double>(x)));
    if (std::isnan(lane_to_f32(format, table[bits]))) table[bits] = std::isnan(x) ? table[bits] : lane_nan(format);
  }
  return table;
}

double clamped_exp(double x) { return std::exp(std::clamp(x, -88.0, 88.0)); }
double inverse(double x) { return 1.0 / x; }
double root(double x) { return std::sqrt(x); }

}  // namespace

float to_odd_float(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

Bf16 f64_to_bf16(double value) { return f32_to_bf16(to_odd_float(value)); }
Bf16 f64_to_lane(LaneFormat format, double value) { return f32_to_lane(format, to_odd_float(value)); }

// 16-bit functions are tables. The double results are within 1 ulp of double, and no argument brings e^x, 1/x or
// sqrt(x) so close to a rounding boundary of its format that this matters (arithmetic_test.cpp checks the distance).
Bf16 bf16_exp(Bf16 x) {
  static const Table table = tabulate(LaneFormat::kBf16, clamped_exp);
  return table[x];
}

Bf16 bf16_reciprocal(Bf16 x) {
  static const Table table = tabulate(LaneFormat::kBf16, inverse);
  return table[x];
}

Bf16 bf16_sqrt(Bf16 x) {
  static const Table table = tabulate(LaneFormat::kBf16, root);
  return table[x];
}

Bf16 f16_exp(Bf16 x) {
  static const Table table = tabulate(LaneFormat::kF16, clamped_exp);
  return table[x];
}

Bf16 f16_reciprocal(Bf16 x) {
  static const Table table = tabulate(LaneFormat::kF16, inverse);
  return table[x];
}

Bf16 f16_sqrt(Bf16 x) {
  static const Table table = tabulate(LaneFormat::kF16, root);
  return table[x];
}

Bf16 fixed_to_lane(LaneFormat format, std::int64_t value, int exponent) {
  const auto [mantissa, e] = narrow(value, exponent);
  return f64_to_lane(format, std::ldexp(static_cast<double>(mantissa), e));
}

float fixed_to_f32(std::int64_t value, int exponent) {
  const auto [mantissa, e] = narrow(value, exponent);
  return static_cast<float>(std::ldexp(static_cast<double>(mantissa), e));
}

}  // namespace dllm::npu
