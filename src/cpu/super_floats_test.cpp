#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"
#include "cpu/packed_weights.h"
#include "numerics/half.h"
#include "numerics/tensor_type.h"

// The arithmetic `super` with weights of BF16 and F16 against its definition (docs/design/arithmetic.md).

namespace dllm::cpu {
namespace {

using test::Random;
using test::random_floats;

/// A number as the sum of two; the second is zero where the definition has one.
using Parts = std::pair<float, float>;

float rounded_to_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }
float cut_to_bf16(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u); }

Parts parts_of_row(float x) {
  const float first = rounded_to_bf16(x);
  return {first, rounded_to_bf16(x - first)};
}
Parts parts_of_weight(TensorType type, std::uint16_t word) {
  if (type == TensorType::kBF16) return {bf16_to_f32(word), 0.f};
  const float weight = f16_to_f32(word), high = cut_to_bf16(weight);
  return {high, weight - high};
}

float definition(TensorType type, const float* x, const std::uint16_t* w, std::int64_t k) {
  float sum = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += 32)
    for (int product = type == TensorType::kBF16 ? 1 : 0; product < (type == TensorType::kBF16 ? 2 : 3); ++product) {
      float chains[2] = {0, 0};
      for (std::int64_t i = k0; i < k0 + 32; ++i) {
        const auto [first, second] = parts_of_row(x[i]);
        const auto [high, rest] = parts_of_weight(type, w[i]);
        chains[i % 2] = std::fma(product == 2 ? second : first, product == 0 ? rest : high, chains[i % 2]);
      }
      sum = sum + (chains[0] + chains[1]);
    }
  return sum;
}

class SuperFloats : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  /// With rows in the form that the set prefers.
  std::vector<float> run(TensorType type, const std::vector<std::uint16_t>& words, const std::vector<float>& x,
                         std::int64_t k, const float* bias = nullptr) {
    const auto n = static_cast<std::int64_t>(words.size()) / k, rows = static_cast<std::int64_t>(x.size()) / k;
    const WeightView view{type, {k, n}, std::as_bytes(std::span(words))};
    ThreadPool pool(1);
    const PackedMatrix matrix(view, pool, true);
    EXPECT_TRUE(matrix.weight().in_steps);
    LinearRunner runner(*GetParam(), pool);
    std::vector<float> out(static_cast<std::size_t>(rows * n));
    runner.run(runner.prepare(view, &matrix.weight(), bias, x.data(), rows, 1), n, out.data());
    return out;
  }

  /// F16: any finite numbers, subnormal ones included.
  std::vector<std::uint16_t> words_of(TensorType type, std::int64_t count) {
    std::vector<std::uint16_t> words;
    while (static_cast<std::int64_t>(words.size()) < count) {
      const std::uint64_t r = random_.bits();
      if (type == TensorType::kBF16)
        words.push_back(static_cast<std::uint16_t>((r & 0x807fu) | ((120u + ((r >> 20) & 7u)) << 7)));
      else if ((r & 0x7c00u) != 0x7c00u)
        words.push_back(static_cast<std::uint16_t>(r));
    }
    return words;
  }

  Random random_{37};
};

INSTANTIATE_TEST_SUITE_P(Isa, SuperFloats, ::testing::ValuesIn(test::available_sets()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(SuperFloats, AreTheirDefinition) {
  // Products with a row of tiny numbers are subnormal. 288 is more than a block of K.
  const std::int64_t n = 21, rows = 19, k = 288;
  for (const TensorType type : {TensorType::kBF16, TensorType::kF16})
    for (const float scale : {1.f, 0x1p-120f}) {
      const std::vector<std::uint16_t> words = words_of(type, n * k);
      const std::vector<float> bias = random_floats(random_, n);
      std::vector<float> x = random_floats(random_, rows * k, 3.f);
      for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(i)] *= scale;
      const std::vector<float> out = run(type, words, x, k, bias.data());
      for (std::int64_t m = 0; m < rows; ++m)
        for (std::int64_t j = 0; j < n; ++j)
          ASSERT_EQ(out[static_cast<std::size_t>(m * n + j)],
                    definition(type, x.data() + m * k, words.data() + j * k, k) + bias[static_cast<std::size_t>(j)])
              << codec(type).name << " row " << m << " output " << j;
    }
}

TEST(SuperFloatsParts, EveryHalfIsTheSumOfTwoNumbersOfBF16) {
  for (std::uint32_t word = 0; word < 0x10000u; ++word) {
    if ((word & 0x7c00u) == 0x7c00u) continue;
    const auto [high, rest] = parts_of_weight(TensorType::kF16, static_cast<std::uint16_t>(word));
    EXPECT_EQ(high + rest, f16_to_f32(static_cast<std::uint16_t>(word)));
    EXPECT_EQ(rest, cut_to_bf16(rest));
    // BF16's subnormal numbers, which tiles count as zero, do not occur.
    for (const float part : {high, rest}) EXPECT_TRUE(part == 0 || std::fabs(part) >= 0x1p-24f);
  }
}

TEST_P(SuperFloats, F16KeepsSixteenBitsOfRows) {
  // Against the sum in doubles: 2^-16 of the products' magnitudes is far more than the parts lose, and less than one
  // part of rows would.
  const std::int64_t n = 16, k = 512;
  const std::vector<std::uint16_t> words = words_of(TensorType::kF16, n * k);
  const std::vector<float> x = random_floats(random_, k), out = run(TensorType::kF16, words, x, k);
  for (std::int64_t j = 0; j < n; ++j) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const double product = static_cast<double>(x[static_cast<std::size_t>(i)]) *
                             static_cast<double>(f16_to_f32(words[static_cast<std::size_t>(j * k + i)]));
      sum += product, squares += product * product;
    }
    EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(j)]), sum, 0x1p-16 * std::sqrt(squares));
  }
}

TEST_P(SuperFloats, NumbersThatAreNotFiniteShow) {
  const std::int64_t n = 3, k = 32;
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<std::uint16_t> words(static_cast<std::size_t>(n * k), 0x3c00);  // 1
  words[static_cast<std::size_t>(k + 5)] = 0x7c00;                            // infinity
  std::vector<float> x(static_cast<std::size_t>(2 * k), 1.f);
  x[static_cast<std::size_t>(k + 7)] = inf;
  const std::vector<float> out = run(TensorType::kF16, words, x, k);
  EXPECT_EQ(out[0], 32.f);
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], 32.f);
  for (std::size_t j = 3; j < 6; ++j) EXPECT_TRUE(std::isnan(out[j]));
}

}  // namespace
}  // namespace dllm::cpu
