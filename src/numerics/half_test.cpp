#include "numerics/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dllm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The value of a binary16 number, from the definition.
double f16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

bool f16_is_finite(std::uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

TEST(Half, EveryF16WidensExactlyAndComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float wide = f16_to_f32(bits);
    if (f16_is_finite(bits)) {
      ASSERT_EQ(static_cast<double>(wide), f16_value(bits)) << i;
      ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << i;
      ASSERT_EQ(f32_to_f16(wide), bits) << i;
    } else if ((bits & 1023) == 0) {
      ASSERT_EQ(wide, (bits & 0x8000) != 0 ? -kInf : kInf);
      ASSERT_EQ(f32_to_f16(wide), bits);
    } else {
      ASSERT_TRUE(std::isnan(wide)) << i;
      ASSERT_EQ(f32_to_f16(wide), bits | 0x200) << i;  // payload kept, made quiet
    }
  }
}

TEST(Half, F16RoundsToNearestEvenBetweenAllNeighbours) {
  for (std::uint32_t i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    const auto even = (low & 1) == 0 ? low : high;
    // 12 bits, so the midpoint is exact in binary32.
    const auto middle = static_cast<float>((f16_value(low) + f16_value(high)) / 2);
    ASSERT_EQ(f32_to_f16(middle), even) << i;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, kInf)), high) << i;
  }
}

TEST(Half, F16OverflowAndUnderflow) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-65520.0f), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1.0p-25f), 0);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1.0p-25f, 1.0f)), 1);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(Half, EveryBf16WidensExactlyAndComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float wide = bf16_to_f32(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), i << 16);
    ASSERT_EQ(f32_to_bf16(wide), std::isnan(wide) ? bits | 0x40 : bits) << i;
  }
}

TEST(Half, Bf16RoundsToNearestEvenBetweenAllNeighbours) {
  for (std::uint32_t i = 0; i < 0x7f80; ++i) {  // the last neighbour is infinity: overflow rounds by the same rule
    const auto even = static_cast<std::uint16_t>((i & 1) == 0 ? i : i + 1);
    const auto middle = std::bit_cast<float>((i << 16) + 0x8000u);
    ASSERT_EQ(f32_to_bf16(middle), even) << i;
    ASSERT_EQ(f32_to_bf16(-middle), even | 0x8000) << i;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>((i << 16) + 0x7fffu)), i) << i;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>((i << 16) + 0x8001u)), i + 1) << i;
  }
}

TEST(Half, NanStaysNan) {
  // Payloads whose upper bits are all zero would turn into infinity if they were only shifted or rounded.
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fc00000u, 0x7f801fffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(nan)))) << bits;
  }
}

}  // namespace
}  // namespace dllm
