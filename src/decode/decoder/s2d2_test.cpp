// s2d2: its checks against a small exact model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

constexpr std::size_t kWords = 5;  // the last is the mask
constexpr TokenId kS2d2Mask = kWords - 1;
using Weights = std::array<double, kWords>;

std::vector<float> logits_of(const Weights& weights) {
  std::vector<float> z;
  for (const double w : weights) z.push_back(static_cast<float>(std::log(w)));
  return z;
}

Candidate predicted(Position at, TokenId token, const std::vector<float>& z) {
  Candidate one;
  one.position = at;
  one.token = token;
  one.confidence = 0.5;
  one.logit = z[static_cast<std::size_t>(token)];
  one.logits = z;
  return one;
}

/// p of two drafts, which are independent; q of the first, and of the second after each token.
struct Model {
  std::vector<float> p1, p2, q1;
  std::array<std::vector<float>, kWords> q2;
};

Model model_of() {
  Model model;
  model.p1 = logits_of({0.5, 0.2, 0.1, 0.1, 0.1});
  model.p2 = logits_of({0.1, 0.6, 0.1, 0.1, 0.1});
  model.q1 = logits_of({0.25, 0.05, 0.3, 0.3, 0.1});
  model.q2[0] = logits_of({0.1, 0.2, 0.3, 0.3, 0.1});
  model.q2[1] = logits_of({0.4, 0.3, 0.1, 0.1, 0.1});
  model.q2[2] = logits_of({0.1, 0.7, 0.05, 0.05, 0.1});
  model.q2[3] = logits_of({0.6, 0.1, 0.1, 0.1, 0.1});
  return model;
}

/// Of the tokens but the mask, with a temperature, and of the `most` likeliest (0: all).
std::map<TokenId, double> exact(const std::vector<float>& z, double temperature, std::size_t most) {
  std::vector<std::pair<double, TokenId>> ranked;
  for (std::size_t t = 0; t < kWords; ++t)
    ranked.emplace_back(std::exp(static_cast<double>(z[t]) / temperature), static_cast<TokenId>(t));
  std::ranges::stable_sort(ranked, std::ranges::greater{}, &std::pair<double, TokenId>::first);
  if (most > 0) ranked.resize(most);
  std::erase_if(ranked, [](const auto& one) { return one.second == kS2d2Mask; });
  double sum = 0;
  for (const auto& [weight, token] : ranked) sum += weight;
  std::map<TokenId, double> result;
  for (const auto& [weight, token] : ranked) result[token] = weight / sum;
  return result;
}

/// Whether counts are those of `n` draws: chi-squared against its 99.9999th percentile at 15 degrees of freedom.
void expect_drawn_from(const std::map<std::pair<TokenId, TokenId>, double>& expected,
                       const std::map<std::pair<TokenId, TokenId>, int>& counts, double n) {
  double chi = 0;
  for (const auto& [pair, count] : counts) {
    EXPECT_TRUE(expected.contains(pair)) << pair.first << ' ' << pair.second;
  }
  for (const auto& [pair, p] : expected) {
    const double seen = counts.contains(pair) ? counts.at(pair) : 0;
    chi += (seen - n * p) * (seen - n * p) / (n * p);
  }
  EXPECT_LT(chi, 60);
}

TokenId at(const std::map<TokenId, double>& distribution, double u) {
  TokenId token = -1;
  for (const auto& [one, share] : distribution) {
    token = one;
    if ((u -= share) < 0) break;
  }
  return token;
}

/// Two masks after a prompt: drafts drawn from p are checked, and a second token that the check did not reach is drawn
/// from q. Then both together have q's distribution, in which the second token depends on the first.
void check_distribution(double temperature, std::int32_t top_k) {
  const Model model = model_of();
  const auto most = static_cast<std::size_t>(top_k);
  ScoreRequest request;
  request.temperature = static_cast<float>(temperature);
  request.top_k = top_k;
  request.rules = {{kS2d2Mask, false, true}};
  std::map<std::pair<TokenId, TokenId>, int> counts;
  constexpr int kDraws = 20000;
  int both = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto decoder = test::decoder_of("s2d2", {{"check_cost", 0.0}, {"threshold", 2.0}});
    const Canvas canvas({1}, 2, kS2d2Mask);
    const RngKey key{static_cast<std::uint64_t>(i), 0};
    const auto u = [&](std::uint32_t index) { return uniform01(key, RngPurpose::kOrder, 0, index); };
    DecodeContext context{canvas, {1, 3}, 0, 2, 0, key};
    context.request = &request;
    const std::vector<Candidate> candidates{predicted(1, at(exact(model.p1, temperature, most), u(0)), model.p1),
                                            predicted(2, at(exact(model.p2, temperature, most), u(1)), model.p2)};
    ASSERT_TRUE(decoder->decode(context, candidates).empty());
    context.step = 1;
    const std::vector<Edit> drafts = decoder->drafts(context);
    ASSERT_EQ(drafts.size(), 2u);
    const std::vector<Candidate> read{predicted(1, 0, model.q1),
                                      predicted(2, 0, model.q2[static_cast<std::size_t>(drafts[0].token)])};
    const std::vector<Edit> edits = decoder->checked(context, read);
    ASSERT_FALSE(edits.empty());
    const TokenId first = edits[0].token;
    const auto after = exact(model.q2[static_cast<std::size_t>(first)], temperature, most);
    counts[{first, edits.size() > 1 ? edits[1].token : at(after, u(2))}] += 1;
    both += edits.size() == 2 ? 1 : 0;
  }
  EXPECT_GT(both, kDraws / 4);
  EXPECT_LT(both, kDraws * 9 / 10);
  std::map<std::pair<TokenId, TokenId>, double> expected;
  for (const auto& [first, share] : exact(model.q1, temperature, most))
    for (const auto& [second, after] : exact(model.q2[static_cast<std::size_t>(first)], temperature, most))
      expected[{first, second}] = share * after;
  expect_drawn_from(expected, counts, kDraws);
}

TEST(S2d2, WhatIsCheckedHasTheCheckersDistribution) {
  check_distribution(1.0, 0);
  check_distribution(0.6, 0);
  check_distribution(1.5, 3);
}

std::vector<Candidate> sure_ones(std::initializer_list<double> confidences, Position first = 0) {
  std::vector<Candidate> result;
  for (const double c : confidences) {
    Candidate one;
    one.position = first++;
    one.token = one.position + 1;
    one.confidence = c;
    one.log_odds = std::log(c / (1 - c));
    result.push_back(one);
  }
  return result;
}

TEST(S2d2, ChecksWhereThatPromisesMoreTokensPerPass) {
  const auto drafts_after = [](std::vector<Candidate> candidates, double cost, std::int64_t most = 16) {
    const auto decoder = test::decoder_of("s2d2", {{"threshold", 0.9}, {"check_cost", cost}, {"checked_tokens", most}});
    Canvas masks({1}, 8, 99);
    for (Candidate& one : candidates) ++one.position, ++one.token;
    const DecodeContext context{masks, {1, 9}, 0, 8, 0, {1, 0}};
    const std::vector<Edit> edits = decoder->decode(context, candidates);
    const std::vector<Edit> drafts = decoder->drafts(context);
    EXPECT_EQ(edits.empty(), !drafts.empty()) << "a pass drafts, or commits";
    EXPECT_EQ(decoder->keeps_schedule(), !drafts.empty());
    return drafts.size();
  };
  // 1 + 0.8 + 0.64 tokens against 1, and against 2 in two passes.
  EXPECT_EQ(drafts_after(sure_ones({0.8, 0.8, 0.8}), 1), 3u);
  EXPECT_EQ(drafts_after(sure_ones({0.8, 0.8, 0.8}), 1.4), 3u);
  EXPECT_EQ(drafts_after(sure_ones({0.8, 0.8, 0.8}), 1.5), 0u);
  EXPECT_EQ(drafts_after(sure_ones({0.8, 0.8, 0.8}), 0, 2), 2u) << "1.8 tokens";
  EXPECT_EQ(drafts_after(sure_ones({0.95, 0.95, 0.95, 0.95}), 1), 0u) << "the threshold rule commits four";
  EXPECT_EQ(drafts_after(sure_ones({0.3, 0.99, 0.99, 0.99}), 0), 0u) << "the first is in doubt, and three are sure";
  std::vector<Candidate> doubtful = sure_ones({0.8, 0.8, 0.8, 0.8});
  doubtful[2].eligible = false;  // predicts a mask
  EXPECT_EQ(drafts_after(doubtful, 0.5), 2u);
}

TEST(S2d2, GreedyChecksCommitWhatTheCheckerPredicts) {
  for (const bool soft : {false, true}) {
    const auto decoder = test::decoder_of("s2d2", {{"check_cost", 0.0}, {"threshold", 2.0}, {"soft_acceptance", soft}});
    Canvas canvas({1}, 4, 99);
    const DecodeContext context{canvas, {1, 5}, 0, 4, 0, {1, 0}};
    decoder->decode(context, sure_ones({0.9, 0.9, 0.9}, 1));
    ASSERT_EQ(decoder->drafts(context).size(), 3u);
    std::vector<Candidate> read = sure_ones({0.9, 0.6, 0.9, 0.9}, 1);
    read[1].token = 42;  // another arg-max
    const float same = 0, almost_as_likely = -1e-3F;
    for (Candidate& one : read) one.queried = {&same, 1};
    read[1].confidence = 0.95;
    read[1].queried = {&almost_as_likely, 1};
    const std::vector<Edit> edits = decoder->checked(context, read);
    if (soft) {  // q / p is above 1 everywhere: all hold, and the position after them is predicted too
      ASSERT_EQ(edits.size(), 4u);
      EXPECT_EQ(edits[1].token, 3);
      EXPECT_EQ(edits[3].position, 4);
      continue;
    }
    ASSERT_EQ(edits.size(), 2u);
    EXPECT_EQ(edits[0].token, 2);
    EXPECT_EQ(edits[1].token, 42);
  }
}

/// With blocks of one position and exact checks, what is checked is what the model would commit from the left.
TEST(S2d2, AnswersFromTheLeftWhateverWasDrafted) {
  for (const std::int32_t shift : {0, 1}) {
    test::FakeBackend backend(test::masked_desc(8, shift));
    test::MethodRun run{.cache = "block-causal", .decoder = "s2d2"};
    run.grid.origin = BlockOrigin::kAbsolute;
    run.config = {{"threshold", 2.0}, {"check_cost", 0.0}};
    const test::MethodResult result = test::run_method(backend, run);
    ASSERT_TRUE(result.finished);
    EXPECT_GT(result.counters.rounds, 3);
    for (std::size_t i = 1; i < result.commit_pass.size(); ++i)
      EXPECT_GE(result.commit_pass[i], result.commit_pass[i - 1]) << "from the left";
    const test::MethodResult again = test::run_method(backend, run);
    EXPECT_EQ(again.tokens, result.tokens);
  }
}

}  // namespace
}  // namespace dllm
