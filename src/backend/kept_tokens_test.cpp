#include "backend/kept_tokens.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace dllm {
namespace {

/// Probabilities .5, .25, .125, .125, and the same as weights of another scale and as logits.
constexpr std::array<double, 4> kWeights = {4, 2, 1, 1};

struct FilterCase {
  Sampling sampling;
  std::size_t kept;
  bool filters = true;
};
std::vector<FilterCase> filter_cases() {
  return {{{}, 4, false},
          {{.top_k = 2}, 2},
          {{.top_k = 9}, 4},
          {{.top_p = 0.4}, 1},
          {{.top_p = 0.7}, 2},
          {{.top_p = 0.8}, 3},
          {{.top_p = 0}, 1},
          {{.min_p = 0.4}, 2},
          {{.min_p = 0.6}, 1},
          {{.min_p = 0.2}, 4},
          {{.min_p = 1}, 1},
          {{.top_k = 3, .min_p = 0.4}, 2},
          {{.top_k = 1, .top_p = 0.7}, 1}};
}

TEST(KeptTokens, FiltersOfWeightsAreThoseOfLogits) {
  std::vector<TopToken> tokens;
  double mass = 0;
  for (const double weight : kWeights) {
    tokens.push_back({static_cast<TokenId>(tokens.size()), static_cast<float>(std::log(weight))});
    mass += weight / kWeights[0];
  }
  for (const FilterCase& c : filter_cases()) {
    const KeptTokens kept(c.sampling, 4);
    EXPECT_EQ(count_kept(c.sampling, kWeights), c.kept);
    EXPECT_EQ(kept.count(tokens, mass, true), c.kept);
    EXPECT_EQ(has_filter(c.sampling), c.filters);
  }
}

TEST(KeptTokens, SoundMembersAreInTheirRanges) {
  EXPECT_TRUE(KeptTokens::sound({}));
  EXPECT_TRUE(KeptTokens::sound({.temperature = 2, .top_k = 5, .top_p = 0.5, .min_p = 0.5}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Sampling& bad : std::vector<Sampling>{{.temperature = -1},
                                                   {.temperature = nan},
                                                   {.temperature = INFINITY},
                                                   {.top_k = -1},
                                                   {.top_p = -0.1},
                                                   {.top_p = 1.1},
                                                   {.top_p = nan},
                                                   {.min_p = -0.1},
                                                   {.min_p = 1.1},
                                                   {.min_p = nan}})
    EXPECT_FALSE(KeptTokens::sound(bad));
}

TEST(Sampling, EachVisitsEveryMember) {
  Sampling one{.temperature = 1, .top_k = 2, .top_p = 3, .min_p = 4};
  double sum = 0;
  std::size_t bytes = 0;
  Sampling::each<const Sampling>(
      one, [&](const auto& member) { sum += static_cast<double>(member), bytes += sizeof member; });
  EXPECT_EQ(sum, 10);
  // A member that is left out would be missing here: the bytes differ from the struct's by its padding alone.
  EXPECT_LT(sizeof(Sampling) - bytes, alignof(Sampling));
}

}  // namespace
}  // namespace dllm
