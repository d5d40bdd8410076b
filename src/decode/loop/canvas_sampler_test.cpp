#include "decode/loop/canvas_sampler.h"

#include <gtest/gtest.h>

#include <set>

namespace dllm {
namespace {

std::vector<CanvasLook> looks(const std::vector<double>& entropies, TokenId best = 1) {
  std::vector<CanvasLook> result;
  for (const double entropy : entropies) result.push_back({best, 2, entropy, 0});
  return result;
}

TEST(CanvasSampler, AcceptsWhileTheEntropiesBeforeSumToTheBound) {
  CanvasSampler sampler({.length = 4, .entropy_bound = 0.5});
  using Kept = std::vector<TokenId>;
  EXPECT_EQ(sampler.absorb(looks({0.9, 0.25, 0.25, 0.3})), (Kept{-1, 2, 2, 2}));  // 0.25 + 0.25 = 0.5
  EXPECT_EQ(sampler.absorb(looks({0.9, 0.25, 0.3, 0.3})), (Kept{-1, 2, 2, -1}));  // the lower of two equal
  EXPECT_EQ(sampler.absorb(looks({9, 8, 7, 10})), (Kept{-1, -1, 2, -1})) << "at least one";
  EXPECT_EQ(sampler.absorb(looks({0, 0, 0, 0})), (Kept{2, 2, 2, 2}));
}

TEST(CanvasSampler, SureTokensAreKeptForGood) {
  CanvasSampler sampler({.length = 4, .max_steps = 9, .confidence = 0, .threshold = 0.75});
  using Kept = std::vector<TokenId>;
  const auto pass = [&](const std::vector<double>& confidences, TokenId best) {
    std::vector<CanvasLook> seen;
    for (const double one : confidences) seen.push_back({best, 99, 1.0, one});
    return sampler.absorb(seen);
  };
  EXPECT_EQ(pass({0.2, 0.75, 0.5, 0.9}, 5), (Kept{-1, 5, -1, 5})) << "from the threshold on";
  EXPECT_EQ(pass({0.4, 0.9, 0.4, 0.9}, 6), (Kept{6, 5, -1, 5})) << "the surest, of equal ones the first";
  EXPECT_FALSE(sampler.finished());
  EXPECT_EQ(pass({0.9, 0.1, 0.1, 0.1}, 7), (Kept{6, 5, 7, 5}));
  EXPECT_TRUE(sampler.finished()) << "nothing is left";
  sampler.begin();
  EXPECT_EQ(pass({0.1, 0.1, 0.1, 0.8}, 8), (Kept{-1, -1, -1, 8}));
}

TEST(CanvasSampler, TemperatureFallsFromPassToPass) {
  CanvasSampler sampler({.length = 1, .max_steps = 4, .t_min = 0.4, .t_max = 0.8});
  for (const double expected : {0.8, 0.7, 0.6, 0.5}) {
    EXPECT_DOUBLE_EQ(sampler.temperature(), expected);
    EXPECT_FALSE(sampler.finished());
    sampler.absorb(looks({3}));
  }
  EXPECT_TRUE(sampler.finished());
  sampler.begin();
  EXPECT_FALSE(sampler.finished());
  EXPECT_DOUBLE_EQ(sampler.temperature(), 0.8);
}

TEST(CanvasSampler, EndsWhenStableAndConfident) {
  const auto passes = [](std::int32_t stability, const std::vector<std::pair<TokenId, double>>& steps) {
    CanvasSampler sampler({.length = 2, .max_steps = 9, .stability = stability, .confidence = 0.1});
    int count = 0;
    for (const auto& [best, entropy] : steps) {
      ++count;
      sampler.absorb(looks({entropy, entropy}, best));
      if (sampler.finished()) return count;
    }
    return -1;
  };
  EXPECT_EQ(passes(0, {{1, 0.1}, {1, 0.05}}), 2) << "below, not at";
  EXPECT_EQ(passes(1, {{1, 0.05}, {2, 0.05}, {2, 0.5}, {2, 0.05}}), 4);
  EXPECT_EQ(passes(2, {{1, 0.05}, {1, 0.05}, {1, 0.05}}), 3);
  EXPECT_EQ(passes(2, {{1, 0.05}, {1, 0.05}, {2, 0.05}, {1, 0.05}}), -1);
}

TEST(CanvasNoise, IsAFunctionOfSeedPassAndPosition) {
  std::set<TokenId> seen;
  for (Position p = 0; p < 200; ++p) {
    const TokenId token = canvas_noise({7, 0}, 3, p, 10);
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 10);
    seen.insert(token);
    EXPECT_EQ(token, canvas_noise({7, 0}, 3, p, 10));
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_NE(canvas_noise({7, 0}, 3, 5, 1 << 20), canvas_noise({8, 0}, 3, 5, 1 << 20));
  EXPECT_NE(canvas_noise({7, 0}, 3, 5, 1 << 20), canvas_noise({7, 0}, 4, 5, 1 << 20));
}

}  // namespace
}  // namespace dllm
