#include "decode/loop/denoise_pass.h"

#include <gtest/gtest.h>

namespace dllm {
namespace {

constexpr TokenId kMaskToken = 99;

Candidate surest(Position position, TokenId token, double log_odds) {
  Candidate candidate;
  candidate.position = position;
  candidate.token = token;
  candidate.log_odds = log_odds;
  candidate.confidence = 0.25;
  return candidate;
}

TEST(ProgressRule, CommitsTheSurestTokenAtAMask) {
  Canvas canvas({1, 2}, 4, kMaskToken);
  canvas.apply({.position = 2, .token = 7});
  DenoiseStep step;
  DenoiseCounters counters;
  const std::vector<Candidate> candidates = {surest(2, 5, 9), surest(3, 6, -1), surest(4, kMaskToken, 8),
                                             surest(5, 4, 0.5)};
  ASSERT_TRUE(force_progress(candidates, canvas, step, counters));
  ASSERT_EQ(step.edits.size(), 1u);
  EXPECT_EQ(step.edits[0].position, 5);
  EXPECT_EQ(step.edits[0].token, 4);
  EXPECT_EQ(step.edits[0].confidence, 0.25);
  EXPECT_EQ(canvas.token(5), 4);
  EXPECT_TRUE(step.forced);
  EXPECT_EQ(counters.forced, 1);
}

TEST(ProgressRule, HasNothingToCommitWithoutATokenAtAMask) {
  Canvas canvas({1, 2}, 2, kMaskToken);
  DenoiseStep step;
  DenoiseCounters counters;
  EXPECT_FALSE(force_progress(std::vector{surest(2, kMaskToken, 3), surest(3, -1, 5)}, canvas, step, counters));
  EXPECT_TRUE(step.edits.empty());
  EXPECT_FALSE(step.forced);
  EXPECT_EQ(counters.forced, 0);
  EXPECT_EQ(canvas.masked_count(), 2);
}

}  // namespace
}  // namespace dllm
