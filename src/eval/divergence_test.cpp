#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dllm {
namespace {

TEST(Divergence, OfEqualPredictionsIsZero) {
  const std::vector<float> logits = {1.f, 3.f, -2.f};
  Divergence same;
  same.add(logits, logits, 1);
  EXPECT_EQ(same.kl(), 0);
  EXPECT_EQ(same.top1_agreement(), 1);
  EXPECT_EQ(same.accuracy(), 1);
}

TEST(Divergence, WorkedByHand) {
  // p = (1/2, 1/2), q = (3/4, 1/4) and q = (1/4, 3/4), once with the wrong target.
  const std::vector<float> even = {0.f, 0.f}, first = {std::log(3.f), 0.f}, second = {0.f, std::log(3.f)};
  Divergence d;
  d.add(even, first, 0);
  d.add(even, second, 0);
  EXPECT_EQ(d.rows(), 2);
  EXPECT_NEAR(d.kl(), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-7);
  EXPECT_NEAR(d.kl_error(), 0, 1e-7);
  EXPECT_EQ(d.top1_agreement(), 0.5) << "of equal ones the lowest";
  EXPECT_NEAR(d.negative_log_likelihood(), -(std::log(0.75) + std::log(0.25)) / 2, 1e-7);
  EXPECT_EQ(d.accuracy(), 0.5);
  EXPECT_NEAR(d.confidence(), 0.75, 1e-7);
  EXPECT_NEAR(d.calibration_error(), 0.25, 1e-7);
}

TEST(Divergence, ConstantsAddedToLogitsDoNotMatter) {
  const std::vector<float> base = {1.f, 2.f, 4.f}, other = {0.f, 2.5f, 3.f}, shifted = {100.f, 102.5f, 103.f};
  Divergence a, b;
  a.add(base, other, 2);
  b.add(base, shifted, 2);
  EXPECT_NEAR(a.kl(), b.kl(), 1e-5);
  EXPECT_GT(a.kl(), 0);
  EXPECT_NEAR(a.negative_log_likelihood(), b.negative_log_likelihood(), 1e-5);
}

}  // namespace
}  // namespace dllm
