#include "npu_core/machine/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace dllm::npu {
namespace {

// Computed by hand from the OCP MX specification v1.0 and the BF16 rounding rule.
TEST(Bf16, WorkedRoundings) {
  EXPECT_EQ(f64_to_bf16(1.00390625), 0x3f80);
  EXPECT_EQ(f64_to_bf16(1.01171875), 0x3f82);
  EXPECT_EQ(f64_to_bf16(1.0039072), 0x3f81);
  EXPECT_EQ(f64_to_bf16(3.38953e38), 0x7f7f);
  EXPECT_EQ(f64_to_bf16(3.4e38), 0x7f80);
  EXPECT_EQ(f64_to_bf16(1e-40), 0x0001);
  EXPECT_EQ(f64_to_bf16(-0.0), 0x8000);
}

TEST(Bf16, DoubleRoundsOnce) {
  // Just above the tie between 1 and 1 + 2^-7, by less than a float resolves: two roundings would give 1.
  EXPECT_EQ(f64_to_bf16(1.0 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(f64_to_bf16(1.0 + 0x3p-8 - 0x1p-40), 0x3f81);
  EXPECT_EQ(f64_to_bf16(-(1.0 + 0x1p-8 + 0x1p-40)), 0xbf81);
}

/// The neighbours of a BF16 result must not be nearer to the exact value, in long double.
void expect_nearest(Bf16 result, long double exact, LaneFormat format = LaneFormat::kBf16) {
  if (std::isnan(static_cast<double>(exact))) {
    EXPECT_TRUE(std::isnan(lane_to_f32(format, result)));
    return;
  }
  // around the overflow the neighbour is an infinity
  if (std::fabs(exact) > (format == LaneFormat::kBf16 ? 3.3e38L : 65488.0L)) return;
  const long double error = std::fabs(exact - static_cast<long double>(lane_to_f32(format, result)));
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<Bf16>(result + step);
    const float value = lane_to_f32(format, neighbour);
    if (std::isnan(value) || std::isinf(value)) continue;
    EXPECT_LE(error, std::fabs(exact - static_cast<long double>(value)));
  }
}

TEST(Bf16, FunctionsAreCorrectlyRoundedForEveryArgument) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto x = static_cast<Bf16>(bits);
    const long double v = static_cast<long double>(bf16_to_f32(x));
    if (std::isnan(bf16_to_f32(x))) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(bf16_exp(x))));
      continue;
    }
    expect_nearest(bf16_exp(x), std::exp(std::fmin(std::fmax(v, -88.0L), 88.0L)));
    if (v != 0) expect_nearest(bf16_reciprocal(x), 1.0L / v);
    expect_nearest(bf16_sqrt(x), std::sqrt(v));
  }
  EXPECT_EQ(bf16_exp(0), kBf16One);
  EXPECT_EQ(bf16_exp(0xff80), bf16_exp(f32_to_bf16(-88.0f)));
  EXPECT_EQ(bf16_reciprocal(0x8000), 0xff80);
}

TEST(F16, FunctionsAreCorrectlyRoundedForEveryArgument) {
  constexpr LaneFormat kHalf = LaneFormat::kF16;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto x = static_cast<Bf16>(bits);
    const long double v = static_cast<long double>(f16_to_f32(x));
    if (std::isnan(f16_to_f32(x))) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f16_exp(x))));
      continue;
    }
    expect_nearest(f16_exp(x), std::exp(std::fmin(std::fmax(v, -88.0L), 88.0L)), kHalf);
    if (v != 0) expect_nearest(f16_reciprocal(x), 1.0L / v, kHalf);
    expect_nearest(f16_sqrt(x), std::sqrt(v), kHalf);
  }
  EXPECT_EQ(f16_exp(0), kF16One);
  EXPECT_EQ(f16_exp(0x4d00), 0x7c00) << "e^20";
  EXPECT_EQ(f16_reciprocal(0x8000), 0xfc00);
  EXPECT_EQ(f16_add(0x7c00, 0xfc00), kF16Nan);
  EXPECT_EQ(f16_mul(0x0001, 0x3800), 0x0000) << "half of the smallest, to even";
}

TEST(Bf16, OrderKeys) {
  EXPECT_EQ(order_key(0x8000), order_key(0x0000));
  const float values[] = {-INFINITY, -3.0f, -1e-40f, 0.0f, 1e-40f, 2.0f, INFINITY};
  for (std::size_t i = 0; i + 1 < std::size(values); ++i)
    EXPECT_LT(order_key(f32_to_bf16(values[i])), order_key(f32_to_bf16(values[i + 1])));
  EXPECT_GT(order_key(kBf16Nan), order_key(0x7f80));
  EXPECT_EQ(bf16_max(0x8000, 0x0000), 0x8000) << "equal: the first";
}

TEST(Bf16, NanResultsAreOne) {
  EXPECT_EQ(bf16_add(0x7f80, 0xff80), kBf16Nan);
  EXPECT_EQ(bf16_sub(0x3f80, 0xffc1), kBf16Nan);
  EXPECT_EQ(bf16_add(0xff81, 0x7fc5), kBf16Nan);
  EXPECT_EQ(bf16_mul(0x8000, 0x7f80), kBf16Nan);
}

TEST(Fixed, StickyShift) {
  EXPECT_EQ(shift_right_sticky(8, 2), 2);
  EXPECT_EQ(shift_right_sticky(9, 2), 3);
  EXPECT_EQ(shift_right_sticky(-8, 2), -2);
  EXPECT_EQ(shift_right_sticky(-9, 2), -3);
  EXPECT_EQ(shift_right_sticky(5, 100), 1);
  EXPECT_EQ(shift_right_sticky(-5, 100), -1);
  EXPECT_EQ(shift_right_sticky(0, 100), 0);
}

TEST(Fixed, ConversionRoundsOnce) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; ++i) {
    const auto value = static_cast<std::int64_t>(random()) >> (i % 60);
    expect_nearest(fixed_to_bf16(value, -20), std::ldexp(static_cast<long double>(value), -20));
  }
  EXPECT_EQ(fixed_to_bf16((std::int64_t{1} << 62) + (std::int64_t{1} << 54) + 1, -62), 0x3f81);
  EXPECT_EQ(fixed_to_bf16((std::int64_t{1} << 62) + (std::int64_t{1} << 54), -62), 0x3f80);
}

}  // namespace
}  // namespace dllm::npu
