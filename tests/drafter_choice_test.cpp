// What drafters choose beyond the largest logit: heads of their own, terms by the token in front, confidences; and
// blocks that are whole whatever part of them is wanted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "drafter_pair.h"

namespace dllm {
namespace {

using test::Pair;
using test::RandomModel;
using test::Seen;

const std::vector<TokenId> kText = {3, 1, 4, 1, 5, 9, 2};
constexpr Position kKnown = 6;

Pair random_pair(const DrafterDesc& drafter) {
  return test::paired({.architecture = "qwen3", .layers = 4, .kv_heads = 2, .seed = 5},
                      {.architecture = "dflash", .heads = 2, .kv_heads = 1, .seed = 6, .drafter = drafter});
}

/// The draft of `rows` rows after the text.
Scores draft_of(const Pair& pair, Position rows, Seen& drafts) {
  Seen target;
  const auto backend = test::watched_pair(pair, target, drafts);
  const auto cache = *backend->make_cache(32);
  test::scores_of(*backend, *cache, kText, {0, kKnown}, false);
  return test::scores_of(*backend, *cache, kText, {kKnown, kKnown + rows}, true);
}

TEST(DraftChoice, ANarrowDraftIsTheBeginningOfAWideOne) {
  const Pair pair = random_pair({.target_layers = {0, 2}, .block = 7});
  Seen seen;
  const Scores wide = draft_of(pair, 7, seen), narrow = draft_of(pair, 3, seen);
  ASSERT_EQ(wide.rows.size(), 6U);
  ASSERT_EQ(narrow.rows.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(narrow.rows[i].token, wide.rows[i].token);
    EXPECT_EQ(narrow.rows[i].logit, wide.rows[i].logit);
  }
}

TEST(DraftChoice, RowsOfAnOwnHeadNameTheTargetsTokens) {
  Seen seen;
  const Scores scores = draft_of(random_pair({.target_layers = {0, 2}, .block = 6, .vocab = 30}), 6, seen);
  ASSERT_EQ(seen.logits.size(), 5U * 30U);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto row = std::span(seen.logits).subspan(i * 30, 30);
    EXPECT_EQ(scores.rows[i].token, 2 * (std::ranges::max_element(row) - row.begin()) + 1)
        << "the map of random models";
  }
}

/// The terms are by the target's tokens, also where rows of the head are others.
TEST(DraftChoice, CandidatesOfAnOwnHeadHaveTheTermsOfTheTargetsTokens) {
  constexpr std::size_t kVocab = 30, kRank = 4, kTop = 7, kWidth = 64;
  const Pair pair =
      random_pair({.target_layers = {0, 2}, .block = 6, .vocab = kVocab, .selector_rank = kRank, .selector_top = kTop});
  Seen seen;
  const Scores scores = draft_of(pair, 6, seen);
  const auto before = drafter_values(*pair.drafter, "selector_predecessor.weight"),
             after = drafter_values(*pair.drafter, "selector_successor.weight"),
             project = drafter_values(*pair.drafter, "selector_hidden.weight");
  auto previous = static_cast<std::size_t>(kText[kKnown]);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto row = std::span(seen.logits).subspan(i * kVocab, kVocab);
    std::vector<float> ordered(row.begin(), row.end());
    std::ranges::sort(ordered, std::greater<>());
    double best = -1e9, sum = 0, term = 0;
    std::size_t token = 0;
    std::vector<double> kept;
    for (std::size_t t = 0; t < kVocab; ++t) {
      if (row[t] < ordered[kTop - 1]) continue;
      double logit = double{row[t]};
      for (std::size_t r = 0; r < kRank; ++r) {
        double h = 0;
        for (std::size_t k = 0; k < kWidth; ++k)
          h += double{project[r * kWidth + k]} * double{seen.hidden[i * kWidth + k]};
        logit += term = double{before[previous * kRank + r]} * h * double{after[(2 * t + 1) * kRank + r]};
      }
      kept.push_back(logit);
      if (logit > best) best = logit, token = 2 * t + 1;
    }
    for (const double logit : kept) sum += std::exp(logit - best);
    EXPECT_EQ(scores.rows[i].token, static_cast<TokenId>(token));
    EXPECT_NEAR(scores.rows[i].confidence, 1 / sum, 1e-4);
    EXPECT_NE(term, 0);
    previous = token;
  }
}

TEST(DraftChoice, MarkovTermsFollowTheChosenTokensAndTheAnchorPredictsFirst) {
  const Pair pair = random_pair({.target_layers = {0, 2}, .block = 6, .markov_rank = 8, .confidence_head = true});
  Seen seen;
  const Scores scores = draft_of(pair, 6, seen);
  EXPECT_EQ(seen.scored, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  const auto w1 = drafter_values(*pair.drafter, "markov_w1.weight"),
             w2 = drafter_values(*pair.drafter, "markov_w2.weight"),
             head = drafter_values(*pair.drafter, "conf_proj.weight");
  const std::size_t vocab = 80, width = 64, rank = 8;
  auto previous = static_cast<std::size_t>(kText[kKnown]);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(scores.rows[i].position, kKnown + 1 + static_cast<Position>(i));
    double sure = 0;
    for (std::size_t k = 0; k < width; ++k) sure += double{head[k]} * double{seen.hidden[i * width + k]};
    for (std::size_t r = 0; r < rank; ++r) sure += double{head[width + r]} * double{w1[previous * rank + r]};
    EXPECT_NEAR(scores.rows[i].confidence, 1 / (1 + std::exp(-sure)), 1e-4);
    std::vector<double> logits(vocab);
    for (std::size_t t = 0; t < vocab; ++t) {
      logits[t] = double{seen.logits[i * vocab + t]};
      for (std::size_t r = 0; r < rank; ++r) logits[t] += double{w1[previous * rank + r]} * double{w2[t * rank + r]};
    }
    previous = static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
    EXPECT_EQ(scores.rows[i].token, static_cast<TokenId>(previous));
  }
}

}  // namespace
}  // namespace dllm
