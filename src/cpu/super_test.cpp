#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "numerics/half.h"
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

int nearest_even(float x) { return static_cast<int>(std::nearbyint(x)); }
float half(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  return f16_to_f32(bits);
}
/// u of element i of a block of 32 whose nibbles begin at `at`.
int nibble(const std::byte* at, std::int64_t i) {
  const auto byte = std::to_integer<int>(at[i % 16]);
  return i < 16 ? byte & 15 : byte >> 4;
}

/// Q4_0.
Codes level_codes(const std::byte* blocks, std::int64_t k) {
  Codes codes;
  float peak = 0;
  for (std::int64_t g = 0; g < k / 32; ++g) peak = std::max(peak, std::fabs(half(blocks + 18 * g)));
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte* block = blocks + 18 * (i / 32);
    const int level = peak == 0 ? 0 : nearest_even(half(block) * (255.f / peak));
    // round() takes ties away from zero; the quotient is far from exact ties that are none.
    codes.q.push_back(static_cast<int>(std::round(level * (nibble(block + 2, i % 32) - 8) * 127 / 2040.0)));
  }
  codes.scale = peak * (8.f / 127.f);
  return codes;
}

/// w = s u - m, for each weight.
struct Affine {
  std::vector<float> s, m;
  std::vector<int> u;
};
Affine read_q4_1(const std::byte* blocks, std::int64_t k) {
  Affine a;
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte* block = blocks + 20 * (i / 32);
    a.s.push_back(half(block)), a.m.push_back(-half(block + 2)), a.u.push_back(nibble(block + 4, i % 32));
  }
  return a;
}
Affine read_q4_k(const std::byte* blocks, std::int64_t k) {
  Affine a;
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte *block = blocks + 144 * (i / 256), *packed = block + 4;
    const auto at = [&](std::int64_t j) { return std::to_integer<int>(packed[j]); };
    const std::int64_t g = i % 256 / 32;
    const int scale = g < 4 ? at(g) % 64 : at(g + 4) % 16 + 16 * (at(g - 4) / 64);
    const int minimum = g < 4 ? at(g + 4) % 64 : at(g + 4) / 16 + 16 * (at(g) / 64);
    const auto byte = std::to_integer<int>(block[16 + 32 * (g / 2) + i % 32]);
    a.s.push_back(half(block) * static_cast<float>(scale));
    a.m.push_back(half(block + 2) * static_cast<float>(minimum));
    a.u.push_back(g % 2 == 0 ? byte % 16 : byte / 16);
  }
  return a;
}
/// Bit i of 32.
int bit(const std::byte* at, std::int64_t i) { return std::to_integer<int>(at[i / 8] >> i % 8 & std::byte{1}); }
Affine read_q5_0(const std::byte* blocks, std::int64_t k) {
  Affine a;
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte* block = blocks + 22 * (i / 32);
    a.s.push_back(half(block)), a.m.push_back(16 * half(block));
    a.u.push_back(nibble(block + 6, i % 32) + 16 * bit(block + 2, i % 32));
  }
  return a;
}
Affine read_q5_1(const std::byte* blocks, std::int64_t k) {
  Affine a;
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte* block = blocks + 24 * (i / 32);
    a.s.push_back(half(block)), a.m.push_back(-half(block + 2));
    a.u.push_back(nibble(block + 8, i % 32) + 16 * bit(block + 4, i % 32));
  }
  return a;
}
/// Q4_K with a byte of fifth bits for each i modulo 32, whose bit g is group g's.
Affine read_q5_k(const std::byte* blocks, std::int64_t k) {
  std::vector<std::byte> fours;
  for (std::int64_t b = 0; b < k / 256; ++b) {
    const std::byte* block = blocks + 176 * b;
    fours.insert(fours.end(), block, block + 16);
    fours.insert(fours.end(), block + 48, block + 176);
  }
  Affine a = read_q4_k(fours.data(), k);
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte fifths = blocks[176 * (i / 256) + 16 + i % 32];
    a.u[static_cast<std::size_t>(i)] += 16 * std::to_integer<int>(fifths >> i % 256 / 32 & std::byte{1});
  }
  return a;
}
Codes affine_codes(const Affine& a, int most) {
  Codes codes;
  const auto most_code = static_cast<float>(most);
  float peak = 0;
  for (std::size_t i = 0; i < a.u.size(); ++i)
    peak = std::max({peak, std::fabs(a.m[i]), std::fabs(most_code * a.s[i] - a.m[i])});
  for (std::size_t i = 0; i < a.u.size(); ++i) {
    const int level = nearest_even(a.s[i] * (126 * most_code / peak)), minimum = nearest_even(a.m[i] * (126.f / peak));
    codes.q.push_back(static_cast<int>(std::round(level * a.u[i] / static_cast<double>(most))) - minimum);
  }
  codes.scale = peak * (1.f / 126.f);
  return codes;
}

/// MXFP4.
Codes exponent_codes(const std::byte* blocks, std::int64_t k) {
  constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  Codes codes;
  int most = 0;
  for (std::int64_t g = 0; g < k / 32; ++g) most = std::max(most, std::to_integer<int>(blocks[17 * g]));
  for (std::int64_t i = 0; i < k; ++i) {
    const std::byte* block = blocks + 17 * (i / 32);
    const int u = nibble(block + 1, i % 32), shift = std::min(most - std::to_integer<int>(block[0]), 8);
    const double value = std::round(kValues[u % 8] * 127 / 6 / std::exp2(shift));
    codes.q.push_back(static_cast<int>(u < 8 ? value : -value));
  }
  codes.scale = std::ldexp(12.f, most - 128) * (1.f / 127.f);
  return codes;
}

/// IQ4 and IQ3: the scale of each group of 32, and the largest magnitude of the type's values, of which IQ3_XXS's are
/// halved.
struct ListedGroups {
  std::vector<float> s;
  int most = 127;
};
ListedGroups read_groups(TensorType type, const std::byte* blocks, std::int64_t k) {
  ListedGroups groups;
  for (std::int64_t g = 0; g < k / 32; ++g) {
    const std::int64_t j = g % 8;
    if (type == TensorType::kIQ4_NL) {
      groups.s.push_back(half(blocks + 18 * g));
      continue;
    }
    const std::byte* const block = blocks + g / 8 * layout_of(type).bytes;
    const auto at = [block](std::int64_t i) { return std::to_integer<int>(block[i]); };
    if (type == TensorType::kIQ4_XS) {
      const int low = at(4 + j / 2) >> (j % 2 * 4) & 15, high = (at(2) + 256 * at(3)) >> (2 * j) & 3;
      groups.s.push_back(half(block) * static_cast<float>(low + 16 * high - 32));
    } else if (type == TensorType::kIQ3_XXS) {
      groups.s.push_back(half(block) * static_cast<float>(2 * (at(66 + 4 * j + 3) >> 4) + 1) / 2);
      groups.most = 31;
    } else {
      groups.s.push_back(half(block) * static_cast<float>(2 * (at(106 + j / 2) >> (j % 2 * 4) & 15) + 1));
      groups.most = 15;
    }
  }
  return groups;
}
Codes value_codes(const ListedGroups& groups, const float* w, std::int64_t k) {
  Codes codes;
  float peak = 0;
  for (const float s : groups.s) peak = std::max(peak, std::fabs(s));
  for (std::int64_t i = 0; i < k; ++i) {
    const float s = groups.s[static_cast<std::size_t>(i / 32)];
    const int value = s == 0 ? 0 : static_cast<int>(std::round(w[i] / s)), level = nearest_even(s * (255.f / peak));
    codes.q.push_back(static_cast<int>(std::round(level * value * 127 / (255.0 * groups.most))));
  }
  codes.scale = peak * (static_cast<float>(groups.most) / 127.f);
  return codes;
}

/// Super-block at element `first` of a matrix.
Codes weight_codes(TensorType type, const std::vector<std::byte>& weight, const std::vector<float>& w,
                   std::int64_t first, std::int64_t k) {
  const BlockLayout& layout = layout_of(type);
  const std::byte* blocks = weight.data() + first / layout.elems * layout.bytes;
  switch (type) {
    case TensorType::kQ4_0:
      return level_codes(blocks, k);
    case TensorType::kQ4_1:
      return affine_codes(read_q4_1(blocks, k), 15);
    case TensorType::kQ4_K:
      return affine_codes(read_q4_k(blocks, k), 15);
    case TensorType::kQ5_0:
      return affine_codes(read_q5_0(blocks, k), 31);
    case TensorType::kQ5_1:
      return affine_codes(read_q5_1(blocks, k), 31);
    case TensorType::kQ5_K:
      return affine_codes(read_q5_k(blocks, k), 31);
    case TensorType::kMXFP4:
      return exponent_codes(blocks, k);
    case TensorType::kIQ4_NL:
    case TensorType::kIQ4_XS:
    case TensorType::kIQ3_XXS:
    case TensorType::kIQ3_S:
      return value_codes(read_groups(type, blocks, k), w.data() + first, k);
    default:
      return byte_codes(w.data() + first, k);
  }
}

std::vector<TensorType> super_types() {
  std::vector<TensorType> types;
  for (const BlockLayout& layout : test::kBlockLayouts)
    if (runs_super(layout.type)) types.push_back(layout.type);
  return types;
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
  ASSERT_EQ(super_types().size(), 13u);
  const std::int64_t n = 21, rows = 19;
  for (const TensorType type : super_types()) {
    const std::int64_t k = 2 * kSuperK + (layout_of(type).elems == 256 ? 256 : 96);
    const std::vector<std::byte> weight = random_blocks(random_, layout_of(type), n * k);
    const std::vector<float> w = decode(type, weight), x = random_floats(random_, rows * k, 3.f);
    const std::vector<float> bias = random_floats(random_, n);
    const std::vector<float> out = run(type, weight, x, n, k, bias.data());
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < n; ++j) {
        float total = 0;
        for (std::int64_t k0 = 0; k0 < k; k0 += kSuperK) {
          const std::int64_t kc = std::min(kSuperK, k - k0);
          const Codes a = weight_codes(type, weight, w, j * k + k0, kc);
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

TEST_P(Super, WeightsAreNearThoseOfTheFile) {
  const std::int64_t n = 16, k = kSuperK;
  for (const TensorType type : super_types()) {
    const std::vector<std::byte> weight = random_blocks(random_, layout_of(type), n * k);
    const std::vector<float> w = decode(type, weight);
    for (std::int64_t i = 0; i < k; i += 37) {
      std::vector<float> x(static_cast<std::size_t>(k), 0.f);
      x[static_cast<std::size_t>(i)] = 1.f;  // selects a column
      const std::vector<float> out = run(type, weight, x, n, k);
      for (std::int64_t j = 0; j < n; ++j) {
        float peak = 0;
        for (std::int64_t at = 0; at < k; ++at)
          peak = std::max(peak, std::fabs(w[static_cast<std::size_t>(j * k + at)]));
        // A half of a step for the entry, for the level and for the minimum; the minimum may exceed every weight.
        const bool minima = super_layout(type, k).minima;
        EXPECT_NEAR(out[static_cast<std::size_t>(j)], w[static_cast<std::size_t>(j * k + i)],
                    peak / 127 * (minima ? 8.f : 1.1f))
            << codec(type).name;
      }
    }
  }
}

TEST_P(Super, WhatIsNotFiniteShowsAndZerosAreZeros) {
  const std::int64_t n = 16;
  const float inf = std::numeric_limits<float>::infinity();
  for (const TensorType type : super_types()) {
    const BlockLayout& layout = layout_of(type);
    const std::int64_t k = layout.elems == 256 ? 256 : 64;
    std::vector<std::byte> weight = random_blocks(random_, layout, n * k);
    std::vector<float> x(static_cast<std::size_t>(k), 0.f);
    for (const float out : run(type, weight, x, n, k)) EXPECT_EQ(out, 0.f);
    x[3] = -inf;
    for (const float out : run(type, weight, x, n, k)) EXPECT_FALSE(std::isfinite(out));
    x[3] = std::numeric_limits<float>::quiet_NaN();
    for (const float out : run(type, weight, x, n, k)) EXPECT_TRUE(std::isnan(out));
    x[3] = 1.f;
    // The first scale of output 0 is infinite, or its products are.
    const auto at = static_cast<std::size_t>(std::max(layout.half0, 0));
    weight[at] = std::byte{type == TensorType::kMXFP4 ? std::uint8_t{255} : std::uint8_t{0}};
    if (type != TensorType::kMXFP4) weight[at + 1] = std::byte{0x7c};
    const std::vector<float> out = run(type, weight, x, n, k);
    EXPECT_TRUE(std::isnan(out[0]));
    for (std::size_t j = 1; j < out.size(); ++j) EXPECT_TRUE(std::isfinite(out[j]));
  }
}

}  // namespace
}  // namespace dllm::cpu
