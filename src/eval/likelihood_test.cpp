// The Monte-Carlo likelihood against joint distributions whose conditionals are known exactly.
#include "eval/likelihood.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "eval/testing/estimate_likelihood.h"

namespace dllm {
namespace {

using test::estimate_likelihood;
using test::MaskedScorer;

/// A joint distribution over three tokens of three kinds, far from independent, and its true conditionals.
class Joint {
 public:
  Joint() {
    double total = 0;
    for (std::size_t i = 0; i < p_.size(); ++i) total += p_[i] = 1 + std::pow(static_cast<double>(i * i * 7 % 11), 2);
    for (double& p : p_) p /= total;
  }

  double probability(const std::array<int, 3>& x) const { return p_[index(x)]; }

  /// log p(x_i | the tokens of x that are not masked) for each masked i.
  std::vector<double> conditionals(const std::array<int, 3>& x, const std::vector<std::int32_t>& masked) const {
    std::vector<double> logs;
    for (const std::int32_t i : masked) {
      double matching = 0, agreeing = 0;
      for (std::size_t code = 0; code < p_.size(); ++code) {
        const std::array<int, 3> y = {static_cast<int>(code) / 9, static_cast<int>(code) / 3 % 3,
                                      static_cast<int>(code) % 3};
        bool matches = true;
        for (std::int32_t j = 0; j < 3; ++j)
          if (std::find(masked.begin(), masked.end(), j) == masked.end())
            matches = matches && y[static_cast<std::size_t>(j)] == x[static_cast<std::size_t>(j)];
        if (!matches) continue;
        matching += p_[code];
        if (y[static_cast<std::size_t>(i)] == x[static_cast<std::size_t>(i)]) agreeing += p_[code];
      }
      logs.push_back(std::log(agreeing / matching));
    }
    return logs;
  }

 private:
  static std::size_t index(const std::array<int, 3>& x) { return static_cast<std::size_t>(9 * x[0] + 3 * x[1] + x[2]); }
  std::array<double, 27> p_{};
};

MaskedScorer scorer_of(const Joint& joint, const std::array<int, 3>& x) {
  return [&joint, x](const std::vector<std::int32_t>& masked) -> Expected<std::vector<double>> {
    return joint.conditionals(x, masked);
  };
}

TEST(Likelihood, EnumerationIsTheLogProbabilityOfAConsistentModel) {
  const Joint joint;
  for (const std::array<int, 3> x : {std::array{0, 0, 0}, std::array{1, 2, 0}, std::array{2, 2, 1}}) {
    const auto exact = estimate_likelihood(3, scorer_of(joint, x), {.samples = 0});
    ASSERT_TRUE(exact);
    EXPECT_EQ(exact->samples, 7);
    EXPECT_EQ(exact->standard_error, 0);
    EXPECT_NEAR(exact->log_likelihood, std::log(joint.probability(x)), 1e-12);
  }
}

TEST(Likelihood, SamplesConvergeToTheEnumeration) {
  const Joint joint;
  const auto scorer = scorer_of(joint, {2, 0, 1});
  const double exact = estimate_likelihood(3, scorer, {.samples = 0})->log_likelihood;
  const auto estimate = estimate_likelihood(3, scorer, {.samples = 1 << 15, .rng = {7, 3}});
  ASSERT_TRUE(estimate);
  EXPECT_EQ(estimate->samples, 1 << 15);
  EXPECT_GT(estimate->standard_error, 0);
  EXPECT_LT(std::abs(estimate->log_likelihood - exact), 4 * estimate->standard_error);
  EXPECT_LT(estimate->standard_error, 0.01);
}

TEST(Likelihood, MasksAreAFunctionOfTheRequest) {
  const auto masks_of = [](RngKey rng) {
    std::vector<std::vector<std::int32_t>> masks;
    const auto done =
        estimate_likelihood(9,
                            [&](const std::vector<std::int32_t>& masked) -> Expected<std::vector<double>> {
                              masks.push_back(masked);
                              return std::vector<double>(masked.size(), -1.0);
                            },
                            {.samples = 18, .group = 9, .rng = rng});
    EXPECT_TRUE(done);
    // Every token costs one nat, so each sample gives 9/k * k.
    EXPECT_NEAR(done->log_likelihood, -9, 1e-12);
    return masks;
  };
  const auto masks = masks_of({1, 1});
  EXPECT_EQ(masks, masks_of({1, 1}));
  EXPECT_NE(masks, masks_of({1, 2}));
  EXPECT_NE(masks, masks_of({2, 1}));
  // Stratified: a group of nine over nine tokens has every count once.
  std::multiset<std::size_t> counts;
  for (const auto& mask : masks) {
    counts.insert(mask.size());
    EXPECT_TRUE(std::is_sorted(mask.begin(), mask.end()));
    EXPECT_EQ(std::set<std::int32_t>(mask.begin(), mask.end()).size(), mask.size());
    EXPECT_GE(mask.front(), 0);
    EXPECT_LT(mask.back(), 9);
  }
  for (std::size_t k = 1; k <= 9; ++k) EXPECT_EQ(counts.count(k), 2u) << k;
}

TEST(Likelihood, OneTokenNeedsOnePass) {
  int passes = 0;
  const auto estimate = estimate_likelihood(1, [&](const std::vector<std::int32_t>&) -> Expected<std::vector<double>> {
    ++passes;
    return std::vector<double>{-0.5};
  });
  EXPECT_EQ(passes, 1);
  EXPECT_DOUBLE_EQ(estimate->log_likelihood, -0.5);
}

TEST(Likelihood, Errors) {
  const MaskedScorer broken = [](const std::vector<std::int32_t>&) -> Expected<std::vector<double>> {
    return Error{ErrorCode::kResource, "no memory", "", ""};
  };
  EXPECT_EQ(estimate_likelihood(4, broken).error().code, ErrorCode::kResource);
  EXPECT_FALSE(estimate_likelihood(0, broken));
  EXPECT_EQ(estimate_likelihood(kMaxEnumerated + 1, broken, {.samples = 0}).error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace dllm
