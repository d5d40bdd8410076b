#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "numerics/tensor_type.h"

// The arithmetic `super`, implemented again in plain code from docs/design/arithmetic.md, against every kernel set of
// this machine, bit for bit; and against double precision. kernels/selftest.cpp covers shapes with every kind of
// remainder, and emulated tiles.

namespace dllm::cpu {
namespace {

using test::BlockLayout;
using test::Random;
using test::TestSuperMatrix;
using test::TestSuperRows;

const BlockLayout& layout_of(TensorType type) {
  return *std::find_if(std::begin(test::kBlockLayouts), std::end(test::kBlockLayouts),
                       [&](const BlockLayout& layout) { return layout.type == type; });
}

std::vector<float> decode(TensorType type, const std::vector<std::byte>& weight) {
  const Codec& format = codec(type);
  std::vector<float> w(weight.size() / static_cast<std::size_t>(format.block_bytes) *
                       static_cast<std::size_t>(format.block_elems));
  format.dequantize(weight.data(), w.data(), static_cast<std::int64_t>(w.size()));
  return w;
}

/// A super-block of weights or of a row: integers and the float that multiplies them.
struct Codes {
  std::vector<int> q;
  float scale = 0;
};

Codes row_codes(const float* x, std::int64_t k) {
  Codes codes;
  float peak = 0;
  for (std::int64_t i = 0; i < k; ++i) peak = std::max(peak, std::fabs(x[i]));
  const float inverse = peak < 0x1p-100f ? 0.f : 16256.f / peak;
  for (std::int64_t i = 0; i < k; ++i) codes.q.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
  codes.scale = peak < 0x1p-100f ? 0.f : peak / 16256.f;
  return codes;
}

Codes byte_codes(const float* w, std::int64_t k) {
  Codes codes;
  float peak = 0;
  for (std::int64_t i = 0; i < k; ++i) peak = std::max(peak, std::fabs(w[i]));
  for (std::int64_t i = 0; i < k; ++i)
    codes.q.push_back(peak == 0 ? 0 : static_cast<int>(std::nearbyint(w[i] * (127.f / peak))));
  codes.scale = peak / 127.f;
  return codes;
}

/// `w` holds s (u - 8); s, the scale of a group, comes from the file.
Codes nibble_codes(const std::byte* blocks, std::int64_t k) {
  Codes codes;
  std::vector<float> scales;
  for (std::int64_t g = 0; g < k / 32; ++g) {
    std::vector<std::byte> one(blocks + 18 * g, blocks + 18 * g + 18);
    std::fill(one.begin() + 2, one.end(), std::byte{0x99});  // codes of 9: the weight is the scale
    scales.push_back(decode(TensorType::kQ4_0, one)[0]);
  }
  float peak = 0;
  for (const float s : scales) peak = std::max(peak, std::fabs(s));
  for (std::int64_t i = 0; i < k; ++i) {
    const auto byte = std::to_integer<int>(blocks[18 * (i / 32) + 2 + i % 16]);
    const int u = (i % 32 < 16 ? byte & 15 : byte >> 4) - 8;
    const int level =
        peak == 0 ? 0 : static_cast<int>(std::nearbyint(scales[static_cast<std::size_t>(i / 32)] * (255.f / peak)));
    // round() takes ties away from zero; the quotient is far from exact ties that are none.
    codes.q.push_back(static_cast<int>(std::round(level * u * 127 / 2040.0)));
  }
  codes.scale = peak * (8.f / 127.f);
  return codes;
}

class Super : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  const KernelSet& set() const { return *GetParam(); }

  std::vector<float> run(TensorType type, const std::vector<std::byte>& weight, const std::vector<float>& x,
                         std::int64_t n, std::int64_t k, const float* bias = nullptr) {
    const auto rows = static_cast<std::int64_t>(x.size()) / k;
    TestSuperMatrix matrix(type, weight, n, k);
    TestSuperRows quantized(set(), x, rows);
    std::vector<float> out(static_cast<std::size_t>(rows * n));
    test::AlignedBytes scratch(kLinearScratchBytes);
    LinearArgs args;
    matrix.add_to(args);
    args.k = k, args.rows = rows, args.n = n, args.super_rows = quantized.view(), args.bias = bias;
    args.out = out.data(), args.out_stride = n;
    set().linear(args, 0, n, scratch.data());
    return out;
  }

  Random random_{31};
};

INSTANTIATE_TEST_SUITE_P(Isa, Super, ::testing::ValuesIn(test::available_sets()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(Super, IsItsDefinition) {
  const std::int64_t n = 21, rows = 19, k = 2 * kSuperK + 96;
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0}) {
    ASSERT_TRUE(runs_super(type));
    const std::vector<std::byte> weight = random_blocks(random_, layout_of(type), n * k);
    const std::vector<float> w = decode(type, weight), x = random_floats(random_, rows * k, 3.f);
    const std::vector<float> bias = random_floats(random_, n);
    const std::vector<float> out = run(type, weight, x, n, k, bias.data());
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < n; ++j) {
        float total = 0;
        for (std::int64_t k0 = 0; k0 < k; k0 += kSuperK) {
          const std::int64_t kc = std::min(kSuperK, k - k0);
          const Codes a = type == TensorType::kQ8_0 ? byte_codes(w.data() + j * k + k0, kc)
                                                    : nibble_codes(weight.data() + (j * k + k0) / 32 * 18, kc);
          const Codes b = row_codes(x.data() + m * k + k0, kc);
          std::int32_t sum = 0;
          for (std::size_t i = 0; i < a.q.size(); ++i) sum += a.q[i] * b.q[i];
          total = std::fma(static_cast<float>(sum), a.scale * b.scale, total);
        }
        ASSERT_EQ(out[static_cast<std::size_t>(m * n + j)], total + bias[static_cast<std::size_t>(j)])
            << codec(type).name << " row " << m << " output " << j;
      }
  }
}

TEST_P(Super, OutliersLeaveTheirNeighboursTheirBits) {
  // One value of a row is 200 times as large as any other. With one byte per value the others would all be zero.
  const std::int64_t n = 16, k = kSuperK;
  const std::vector<std::byte> weight = random_blocks(random_, layout_of(TensorType::kQ8_0), n * k);
  std::vector<float> x = random_floats(random_, k);
  x[77] = 200.f;
  const std::vector<float> w = decode(TensorType::kQ8_0, weight), out = run(TensorType::kQ8_0, weight, x, n, k);
  for (std::int64_t j = 0; j < n; ++j) {
    double sum = 0, squares = 0, peak = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(j * k + i);
      sum += static_cast<double>(w[at]) * static_cast<double>(x[static_cast<std::size_t>(i)]);
      peak = std::max(peak, std::fabs(static_cast<double>(w[at])));
      squares += static_cast<double>(w[at]) * static_cast<double>(w[at]);
    }
    // Half a step of each weight times its row value; half a step of the row, 200 / 16256, times the weights, as a sum
    // of independent errors (times 4).
    const double weights = 0.5 * peak / 127 * (200 + 4 * std::sqrt(k / 3.0));
    const double row = 4 * 200.0 / 16256 / std::sqrt(12.0) * std::sqrt(squares);
    EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(j)]), sum, weights + row);
  }
}

TEST_P(Super, LargestCodesOfOneSignDoNotOverflow) {
  const std::int64_t n = 16, k = kSuperK;
  std::vector<std::byte> weight = random_blocks(random_, layout_of(TensorType::kQ8_0), n * k);
  for (std::size_t i = 0; i < weight.size(); ++i)
    weight[i] = i % 34 == 0 ? std::byte{0} : i % 34 == 1 ? std::byte{0x3c} : std::byte{127};  // scale 1
  const std::vector<float> x(static_cast<std::size_t>(k), -1.f);
  for (const float out : run(TensorType::kQ8_0, weight, x, n, k)) EXPECT_NEAR(out, -127.f * 512.f, 0.1f);
}

TEST_P(Super, WhatIsNotFiniteShowsAndZerosAreZeros) {
  const std::int64_t n = 16, k = 64;
  const float inf = std::numeric_limits<float>::infinity();
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0}) {
    std::vector<std::byte> weight = random_blocks(random_, layout_of(type), n * k);
    std::vector<float> x(static_cast<std::size_t>(k), 0.f);
    for (const float out : run(type, weight, x, n, k)) EXPECT_EQ(out, 0.f);
    x[3] = -inf;
    for (const float out : run(type, weight, x, n, k)) EXPECT_FALSE(std::isfinite(out));
    x[3] = std::numeric_limits<float>::quiet_NaN();
    for (const float out : run(type, weight, x, n, k)) EXPECT_TRUE(std::isnan(out));
    x[3] = 1.f;
    weight[0] = std::byte{0}, weight[1] = std::byte{0x7c};  // the first scale of output 0 is infinite
    const std::vector<float> out = run(type, weight, x, n, k);
    EXPECT_TRUE(std::isnan(out[0]));
    for (std::size_t j = 1; j < out.size(); ++j) EXPECT_TRUE(std::isfinite(out[j]));
  }
}

}  // namespace
}  // namespace dllm::cpu
