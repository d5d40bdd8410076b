#include "decode/loop/token_penalties.h"

#include <gtest/gtest.h>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

/// A prompt of 7 7 8, then 9 7 and two masks; position 3 and the first mask are wanted.
struct Case {
  Canvas canvas{{7, 7, 8}, 4, 99};
  DenoisePass pass;
  Case() {
    canvas.apply({.position = 3, .token = 9});
    canvas.apply({.position = 4, .token = 7});
    pass.wanted = {3, 5};
    pass.score_of_wanted = {0, 1};
  }
  LogitAdjustments adjust(const PenaltyConfig& config) const { return adjustments(config, canvas, pass, 2); }
};

TEST(TokenPenalties, CountWhatIsWritten) {
  const LogitAdjustments found = Case().adjust({.repetition = 1.5});
  ASSERT_EQ(found.tokens.size(), 3U);
  EXPECT_EQ(found.tokens[0].token, 7);
  EXPECT_TRUE(found.tokens[0].in_prompt);
  EXPECT_EQ(found.tokens[0].in_answer, 1);
  EXPECT_EQ(found.tokens[1].token, 8);
  EXPECT_EQ(found.tokens[1].in_answer, 0);
  EXPECT_EQ(found.tokens[2].token, 9);
  EXPECT_FALSE(found.tokens[2].in_prompt);
  EXPECT_EQ(found.shown, (std::vector<TokenId>{9, -1}));
}

TEST(TokenPenalties, NothingIsCountedWithoutAPenalty) {
  EXPECT_TRUE(Case().adjust({}).tokens.empty());
  const LogitAdjustments biased = Case().adjust({.biased = {{.token = 4, .bias = 2}}});
  ASSERT_EQ(biased.tokens.size(), 1U);
  EXPECT_EQ(biased.tokens[0].bias, 2);
  EXPECT_TRUE(biased.shown.empty());
}

TEST(TokenPenalties, TokensThatEndAnAnswerAreNoRepetition) {
  const LogitAdjustments found =
      Case().adjust({.presence = 1, .biased = {{.token = 9, .bias = -1}}, .uncounted = {9, 7}});
  ASSERT_EQ(found.tokens.size(), 2U);
  EXPECT_EQ(found.tokens[0].token, 8);
  EXPECT_EQ(found.tokens[1].token, 9);  // its bias holds
  EXPECT_EQ(found.tokens[1].in_answer, 0);
  EXPECT_EQ(found.tokens[1].bias, -1);
}

TEST(TokenPenalties, APositionIsNoRepetitionOfItself) {
  const LogitAdjustments found = Case().adjust({.repetition = 2, .presence = 1, .frequency = 0.5});
  std::vector<float> shows(10, 4.f), masked(10, 4.f), negative(10, -4.f);
  found.apply(0, 0, shows);
  found.apply(1, 0, masked);
  found.apply(1, 0, negative);
  EXPECT_EQ(shows[9], 4);         // the position shows it
  EXPECT_EQ(masked[9], 2 - 1.5);  // elsewhere it would be the second
  EXPECT_EQ(shows[7], 2 - 1.5);   // prompt and answer
  EXPECT_EQ(shows[8], 2);         // prompt only
  EXPECT_EQ(negative[8], -8);     // a negative logit falls, too
  EXPECT_EQ(negative[9], -8 - 1.5);
  EXPECT_EQ(shows[6], 4);
}

/// The loop sends the adjustments of the canvas as it is, with every method.
TEST(TokenPenalties, ReachTheBackendInEveryPass) {
  for (const std::int32_t shift : {0, 1}) {
    test::FakeBackend backend(test::masked_desc(0, shift));
    std::vector<LogitAdjustments> seen;
    std::vector<std::size_t> scored;
    backend.observe = [&](const SequenceStep& step) {
      seen.push_back(step.request.adjustments);
      scored.push_back(step.plan.scored.size());
    };
    test::MethodRun run;
    run.options.penalties = {.frequency = 1, .uncounted = {3}};
    const test::MethodResult result = test::run_method(backend, run);
    ASSERT_TRUE(result.finished);
    ASSERT_GT(seen.size(), 3U);
    std::int32_t before = 0;
    for (std::size_t pass = 0; pass < seen.size(); ++pass) {
      EXPECT_EQ(seen[pass].shown.size(), scored[pass]);
      std::int32_t total = 0;
      for (const auto& token : seen[pass].tokens) {
        total += token.in_answer;
        EXPECT_NE(token.token, 3);
        EXPECT_NE(token.token, 99);
        EXPECT_EQ(token.in_prompt, token.token >= 1 && token.token <= run.prompt);
      }
      EXPECT_EQ(total, before) << "pass " << pass;
      for (const Edit& edit : result.steps[pass].edits) before += edit.token != 3 ? 1 : 0;
    }
  }
}

}  // namespace
}  // namespace dllm
