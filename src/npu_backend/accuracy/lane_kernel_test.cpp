#include "npu_backend/accuracy/lane_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "npu_backend/accuracy/operand_format.h"

namespace dllm::npu::accuracy {
namespace {

constexpr VectorPrecision kPrecisions[] = {VectorPrecision::kF32, VectorPrecision::kF16, VectorPrecision::kBF16};

/// Bit patterns of all kinds: random ones, numbers near 1, and zeros, infinities and NaNs among them.
std::vector<float> patterns(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  const float specials[] = {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, std::nanf(""), 65519.0f, 65520.0f, 0x1p-14f, 0x1p-149f};
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = i % 3 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(random())) : normal(random);
    if (random() % 50 == 0) values[i] = specials[random() % std::size(specials)];
  }
  return values;
}

/// The same bits, but for the payload of a NaN.
void expect_same(const LaneKernel& kernel, float got, float expected) {
  if (std::isnan(expected))
    EXPECT_TRUE(std::isnan(got)) << kernel.name;
  else
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << kernel.name;
}

TEST(LaneKernel, RoundsAsTheDefinition) {
  for (const std::size_t n : {1u, 15u, 16u, 63u, 64u, 65u, 5000u}) {
    const std::vector<float> a = patterns(n, 1), b = patterns(n, 2);
    std::vector<double> sums;
    for (std::size_t i = 0; i < n; ++i)
      sums.push_back(i % 7 == 0 ? std::ldexp(static_cast<double>(b[i]), static_cast<int>(i % 300) - 150)
                                : static_cast<double>(a[i]) + 1e-9 * static_cast<double>(b[i]));
    for (const LaneKernel& kernel : lane_kernels())
      for (const VectorPrecision precision : kPrecisions) {
        const auto count = static_cast<std::int64_t>(n);
        std::vector<float> rounded = a, added = a, products(n), scaled(n);
        kernel.round(precision, rounded.data(), count);
        kernel.add(precision, added.data(), b.data(), count);
        kernel.round_sums(precision, sums.data(), count, products.data());
        kernel.scale_sums(precision, sums.data(), 0.125f, count, scaled.data());
        for (std::size_t i = 0; i < n; ++i) {
          expect_same(kernel, rounded[i], round_to(precision, a[i]));
          expect_same(kernel, added[i], round_to(precision, a[i] + b[i]));
          expect_same(kernel, products[i], round_to(precision, sums[i]));
          expect_same(kernel, scaled[i], round_to(precision, static_cast<float>(sums[i]) * 0.125f));
        }
      }
  }
}

TEST(LaneKernel, MaximumIsTheVectorUnits) {
  std::mt19937 random(9);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> lanes = patterns(1 + random() % 100, static_cast<std::uint32_t>(100 + round));
    if (round % 3 != 0)
      for (float& lane : lanes) lane = std::isnan(lane) ? -1.0f : lane;
    std::vector<std::uint8_t> seen(lanes.size());
    float expected = -65504.0f;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      seen[i] = random() % 4 != 0 ? 1 : 0;
      if (seen[i] != 0) expected = vector_max(expected, lanes[i]);
    }
    for (const LaneKernel& kernel : lane_kernels()) {
      const float got = kernel.maximum(lanes.data(), seen.data(), static_cast<std::int64_t>(lanes.size()), -65504.0f);
      EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected))) << kernel.name << " " << round;
    }
  }
}

TEST(LaneKernel, TablesAreTheVectorUnits) {
  for (const VectorPrecision precision : {VectorPrecision::kBF16, VectorPrecision::kF16}) {
    std::vector<float> all;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto code = static_cast<std::uint16_t>(bits);
      all.push_back(precision == VectorPrecision::kF16 ? f16_to_f32(code) : bf16_to_f32(code));
    }
    std::vector<float> exponentials = all, reciprocals = all;
    exp_lanes(precision, exponentials);
    reciprocal_lanes(precision, reciprocals);
    for (std::size_t i = 0; i < all.size(); ++i) {
      expect_same(lane_kernel(), exponentials[i], vector_exp(precision, all[i]));
      expect_same(lane_kernel(), reciprocals[i], vector_reciprocal(precision, all[i]));
    }
  }
}

TEST(LaneKernel, IntegersAreTheCodecs) {
  for (const char* name : {"mxint4", "mxint4:16:plena", "mxint8", "mxint8:8:plena-symmetric", "mxint8:16:plena",
                           "mxfp4_e2m1", "mxfp6_e2m3", "mxfp6_e3m2:16", "mxfp8_e4m3", "mxfp8_e4m3:8"}) {
    const MxFormat format = *mx_format_from_name(name);
    const auto block = static_cast<std::size_t>(format.block), n = 400 * block;
    std::vector<float> x = patterns(n, 5);
    for (std::size_t b = 0; b < 400; ++b)
      for (std::size_t i = 0; i < block; ++i) {  // blocks of one size, of halves, of zeros, and of anything
        float& value = x[b * block + i];
        if (b % 4 == 1) value = std::isfinite(value) ? std::fmod(value, 4.0f) : 1.0f;
        if (b % 4 == 2)
          value =
              std::ldexp(std::round(std::fmod(std::isfinite(value) ? value : 3, 64.0f)), -1 - static_cast<int>(b % 9));
        if (b % 40 == 3) value = std::copysign(0.0f, value);
      }
    std::vector<std::uint16_t> codes(n);
    std::vector<std::uint8_t> scales(400);
    mx_quantize(format, x.data(), n, codes.data(), scales.data());
    Operand expected;
    lay_integers(format, codes, scales, expected);
    for (const LaneKernel& kernel : lane_kernels()) {
      std::vector<float> lanes(n);
      std::vector<std::int16_t> exponents(400);
      kernel.integers(LaneFormatInfo(format), x.data(), static_cast<std::int64_t>(n), lanes.data(), exponents.data());
      for (std::size_t i = 0; i < n; ++i)
        EXPECT_EQ(lanes[i], expected.lanes[i]) << name << " " << kernel.name << " " << i << " of " << x[i];
      EXPECT_EQ(exponents, expected.exponents) << name << " " << kernel.name;
    }
  }
}

}  // namespace
}  // namespace dllm::npu::accuracy
