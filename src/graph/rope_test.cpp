#include "graph/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dllm {
namespace {

op::Rope plain(std::int32_t dims = 16, float theta = 100.f) {
  op::Rope rope{};
  rope.dims = rope.head_dim = dims;
  rope.theta = theta;
  rope.scale = 1.f;
  return rope;
}

TEST(Rope, FrequenciesFallByPowers) {
  const auto f = rope_frequencies(plain(), {});
  ASSERT_EQ(f.size(), 8u);
  for (std::size_t j = 0; j < f.size(); ++j)
    EXPECT_FLOAT_EQ(f[j], static_cast<float>(std::pow(100.0, -2.0 * static_cast<double>(j) / 16)));
  const std::vector<float> factors = {1, 2, 4, 8, 1, 1, 1, 1};
  EXPECT_FLOAT_EQ(rope_frequencies(plain(), factors)[3], f[3] / 8);
}

TEST(Rope, YarnKeepsFastPairsAndStretchesSlowOnes) {
  op::Rope rope = plain();
  // Pairs that turn 0.3 and 0.02 times within 4 positions: 16 ln(4 / (2 pi r)) / (2 ln 100) = 1.3 and 6.01.
  rope.yarn = {.factor = 4, .original_context = 4, .beta_fast = 0.3f, .beta_slow = 0.02f};
  const auto before = rope_frequencies(plain(), {}), after = rope_frequencies(rope, {});
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_FLOAT_EQ(after[7], before[7] / 4);
  for (std::size_t j = 2; j < 7; ++j) {  // the ramp is linear from pair 1 to pair 7
    const float slow = static_cast<float>(j - 1) / 6;
    EXPECT_FLOAT_EQ(after[j], before[j] * (1 - slow) + before[j] / 4 * slow) << j;
  }
}

TEST(Rope, AYarnFactorOfOneChangesNothing) {
  op::Rope rope = plain();
  rope.yarn.original_context = 4096;
  EXPECT_EQ(rope_frequencies(rope, {}), rope_frequencies(plain(), {}));
  EXPECT_EQ(rope_magnitude(rope, 7), 1.0);
}

TEST(Rope, GrowthBeginsAtItsLength) {
  op::Rope rope = plain();
  rope.yarn.magnitude = 2.f;
  rope.growth = {.beta = 0.5f, .length = 10};
  EXPECT_EQ(rope_magnitude(rope, 9), 2.0);
  EXPECT_DOUBLE_EQ(rope_magnitude(rope, 10), 2 * (1 + 0.5 * std::log(2.0)));
  EXPECT_DOUBLE_EQ(rope_magnitude(rope, 39), 2 * (1 + 0.5 * std::log(4.0)));
  op::Rope other = rope;
  other.growth = {};
  EXPECT_FALSE(rope.turns_like(other));
}

}  // namespace
}  // namespace dllm
