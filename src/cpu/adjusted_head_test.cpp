#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "cpu/kernels/test_data.h"
#include "cpu/testing/head_fixture.h"

namespace dllm::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// The definition of LogitAdjustments, over a whole row.
std::vector<float> adjusted(std::vector<float> z, const LogitAdjustments& adjustments, TokenId shown) {
  for (const LogitAdjustments::Token& one : adjustments.tokens) {
    float& logit = z[static_cast<std::size_t>(one.token)];
    const int n = one.in_answer - (one.token == shown ? 1 : 0);
    if (one.in_prompt || n > 0) {
      if (logit > 0)
        logit /= adjustments.repetition;
      else
        logit *= adjustments.repetition;
    }
    if (n > 0) logit = logit - adjustments.presence - adjustments.frequency * static_cast<float>(n);
    logit += one.bias;
  }
  return z;
}

LogitAdjustments some_adjustments(std::size_t rows, std::size_t vocab, test::Random& random) {
  LogitAdjustments result{.repetition = 1.3f, .presence = 0.5f, .frequency = 0.25f};
  const auto pick = [&random](int n) { return static_cast<int>(random.below(n)); };
  std::map<TokenId, LogitAdjustments::Token> tokens;
  for (int i = 0; i < 300; ++i) {
    const TokenId id = pick(static_cast<int>(vocab));
    tokens[id] = {id, pick(2) == 0, pick(3), pick(4) == 0 ? 3 * random.unit() : pick(40) == 0 ? kNever : 0};
  }
  for (const auto& [id, one] : tokens) result.tokens.push_back(one);
  // Every other row shows a token that the answer contains.
  for (std::size_t r = 0; r < rows; ++r) {
    result.shown.push_back(-1);
    for (const LogitAdjustments::Token& one : result.tokens)
      if (r % 2 == 1 && one.in_answer > 0 && pick(20) == 0) result.shown[r] = one.token;
  }
  return result;
}

TEST(ScoreHead, AdjustsLogitsBeforeEverythingElse) {
  test::Random random(11);
  constexpr std::size_t kVocab = 2500, kRows = 40;
  std::vector<std::vector<float>> rows, expected_rows;
  for (std::size_t r = 0; r < kRows; ++r) rows.push_back(test::random_floats(random, kVocab, 4.f));
  for (int round = 0; round < 6; ++round) {
    ScoreRequest request;
    request.logits = true, request.top_tokens = 3;
    request.temperature = round % 2 == 0 ? 0 : 0.8, request.top_p = round > 3 ? 0.9 : 1, request.rng = {5, 1};
    request.queries = {{0, 7}, {3, 2400}, {39, 0}};
    request.rules = {{2, false, true}, {5, true, false}};
    ScoreRequest plain = request;
    request.adjustments = some_adjustments(kRows, kVocab, random);
    expected_rows.clear();
    for (std::size_t r = 0; r < kRows; ++r)
      expected_rows.push_back(adjusted(rows[r], request.adjustments, request.adjustments.shown[r]));
    test::HeadFixture head(2);
    const Scores got = head.run(rows, request);
    // Zero times -infinity is no number, so excluded tokens stay finite in the weights of the expected run.
    for (std::vector<float>& row : expected_rows)
      for (float& z : row) z = z == kNever ? -1e30f : z;
    const Scores expected = head.run(expected_rows, plain);
    EXPECT_EQ(got.queried.size(), expected.queried.size());
    for (std::size_t q = 0; q < got.queried.size(); ++q)
      EXPECT_EQ(std::max(got.queried[q], -1e30f), expected.queried[q]);
    for (std::size_t i = 0; i < got.logits.size(); ++i)
      ASSERT_EQ(std::max(got.logits[i], -1e30f), expected.logits[i]) << i;
    for (std::size_t i = 0; i < got.top.size(); ++i) EXPECT_EQ(got.top[i].token, expected.top[i].token);
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(got.rows[r].token, expected.rows[r].token) << r;
      EXPECT_EQ(got.rows[r].logit, expected.rows[r].logit) << r;
      EXPECT_EQ(got.rows[r].confidence, expected.rows[r].confidence) << r;
      EXPECT_EQ(got.rows[r].log_odds, expected.rows[r].log_odds) << r;
      EXPECT_EQ(got.rows[r].entropy, expected.rows[r].entropy) << r;
    }
  }
}

}  // namespace
}  // namespace dllm::cpu
