#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "drawn_plans.h"

namespace dllm::test {

/// Plans over 40 positions with shadow rows, and what holds of them bit for bit on every backend that runs them.
class ShadowProperties {
 public:
  /// `hides_exactly`: a position that is not visible changes no bit of the rows that do not see it.
  ShadowProperties(Backend& backend, std::int32_t causal_block, bool hides_exactly)
      : backend_(backend), block_(causal_block), hides_exactly_(hides_exactly) {
    EXPECT_TRUE(backend.runs_shadows());
  }

  /// The logits of the shadow rows, to compare backends.
  std::vector<float> check() {
    rows_keep_their_bits();
    a_shadow_of_a_row_is_that_row();
    a_hidden_position_does_not_matter();
    others_do_not_matter();
    std::vector<float> all = logits(*warm(), with_shadows(), 3);
    for (const std::uint64_t seed : plan_seeds()) {
      const std::vector<float> drawn = drawn_plans_agree(seed);
      all.insert(all.end(), drawn.begin(), drawn.end());
    }
    return all;
  }

 private:
  static constexpr Position kLength = 40;
  static constexpr TokenId kShown = 77;

  static TokenId token(Position p) { return (p * 7 + 3) % 71; }

  /// Rows of the second half, three of them scored.
  StepPlan plan(std::vector<Position> positions, std::vector<std::int32_t> scored) const {
    StepPlan result;
    for (const Position p : positions) result.rows.push_back({p, token(p + 1)});
    result.visible = {{0, kLength}};
    result.causal_block = block_;
    result.scored = std::move(scored);
    return result;
  }
  StepPlan some_rows() const { return plan({18, 20, 21, 22, 23, 31, 39}, {0, 3, 6}); }

  static ShadowRow without(Position p, TokenId shown) { return {{p, shown}, {{0, p}, {p + 1, kLength}}}; }

  StepPlan with_shadows() const {
    StepPlan result = some_rows();
    // A token of this pass, one of an earlier pass, one that sees little, and one that sees its own position.
    result.shadows = {without(5, kShown),
                      {{21, kShown}, {{0, 3}, {7, 20}, {22, 23}}},
                      without(22, kShown),
                      {{31, token(32)}, {{0, kLength}}}};
    for (std::int32_t i = 0; i < 4; ++i) result.scored.push_back(7 + i);
    return result;
  }

  std::unique_ptr<KvCache> warm() const {
    std::unique_ptr<KvCache> cache = *backend_.make_cache(kLength);
    StepPlan all;
    for (Position p = 0; p < kLength; ++p) all.rows.push_back({p, token(p)});
    all.visible = {{0, kLength}};
    all.causal_block = block_;
    all.scored = {0};
    logits(*cache, all, 0);
    return cache;
  }

  /// Of the scored rows from `first` on.
  std::vector<float> logits(KvCache& cache, const StepPlan& plan, std::size_t first) const {
    SequenceStep step{&cache, plan, {}, {}};
    step.request.logits = true;
    const auto scores = backend_.forward({&step, 1});
    if (!scores) {
      ADD_FAILURE() << scores.error().message();
      return {};
    }
    EXPECT_EQ((*scores)[0].rows.size(), plan.scored.size());
    for (std::size_t i = 0; i < plan.scored.size(); ++i)
      EXPECT_EQ((*scores)[0].rows[i].position, plan.row(plan.scored[i]).position);
    return tail((*scores)[0].logits, plan.scored.size(), first);
  }
  static std::vector<float> tail(const std::vector<float>& logits, std::size_t rows, std::size_t first) {
    const auto width = static_cast<std::ptrdiff_t>(logits.size() / rows);
    return {logits.begin() + static_cast<std::ptrdiff_t>(first) * width, logits.end()};
  }

  void rows_keep_their_bits() const {
    const auto plain = warm(), shadowed = warm();
    const std::vector<float> expected = logits(*plain, some_rows(), 0);
    std::vector<float> actual = logits(*shadowed, with_shadows(), 0);
    actual.resize(expected.size());
    EXPECT_EQ(actual, expected);
    EXPECT_EQ(shadowed->epoch(), plain->epoch());
    for (Position p = 0; p < kLength; ++p) {
      EXPECT_EQ(shadowed->token_of(p), plain->token_of(p));
      EXPECT_EQ(shadowed->epoch_of(p), plain->epoch_of(p));
    }
    // What is cached is the same too.
    const StepPlan after = plan({19, 24}, {0, 1});
    EXPECT_EQ(logits(*shadowed, after, 0), logits(*plain, after, 0));
  }

  void a_shadow_of_a_row_is_that_row() const {
    StepPlan both = some_rows();
    for (const std::int32_t i : {0, 3, 6}) {
      both.shadows.push_back({both.rows[static_cast<std::size_t>(i)], both.visible});
      both.scored.push_back(7 + static_cast<std::int32_t>(both.shadows.size()) - 1);
    }
    const std::vector<float> all = logits(*warm(), both, 0);
    EXPECT_EQ(tail(all, 6, 3),
              std::vector<float>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2)));
  }

  /// The row of a position that nobody sees: a shadow row beside it is that row with another token.
  void a_hidden_position_does_not_matter() const {
    StepPlan alone = plan({22}, {0}), beside = plan({22}, {1});
    alone.rows[0].token = kShown;
    alone.visible = {{0, 22}, {23, kLength}};
    beside.shadows = {without(22, kShown)};
    const std::vector<float> hidden = logits(*warm(), beside, 0);
    if (hides_exactly_) {
      EXPECT_EQ(hidden, logits(*warm(), alone, 0));
    }
    beside.shadows[0].visible = {{0, kLength}};
    EXPECT_NE(logits(*warm(), beside, 0), hidden) << "and a visible one does";
    beside.shadows = {without(22, kShown - 1)};
    EXPECT_NE(logits(*warm(), beside, 0), hidden) << "the token that it reads does";
  }

  /// Other shadow rows, and other sequences of the batch.
  void others_do_not_matter() const {
    const std::vector<float> expected = logits(*warm(), with_shadows(), 3);
    std::vector<float> one_by_one;
    for (const ShadowRow& shadow : with_shadows().shadows) {
      StepPlan one = some_rows();
      one.shadows = {shadow};
      one.scored.push_back(7);
      const std::vector<float> own = logits(*warm(), one, 3);
      one_by_one.insert(one_by_one.end(), own.begin(), own.end());
    }
    EXPECT_EQ(one_by_one, expected);

    const auto first = warm(), second = warm(), third = warm();
    std::vector<SequenceStep> batch;
    for (KvCache* cache : {first.get(), second.get(), third.get()}) {
      batch.push_back({cache, cache == second.get() ? with_shadows() : some_rows(), {}, {}});
      batch.back().request.logits = true;
    }
    batch[2].plan.shadows = {without(30, kShown)};
    const auto scores = *backend_.forward(batch);
    EXPECT_EQ(tail(scores[1].logits, 7, 3), expected);
    EXPECT_EQ(scores[0].logits, scores[2].logits) << "an unscored shadow row has no effect";
  }

  /// A drawn plan: its rows as without shadow rows, and each of these as if it were the only one, in a batch too.
  std::vector<float> drawn_plans_agree(std::uint64_t seed) const {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DrawnPlans draws(seed, kLength, block_);
    StepPlan with = draws.plan();
    const StepPlan without_any = with;
    for (Position p = 0; p < kLength; ++p)
      if (draws.below(6) == 0) with.shadows.push_back(draws.shadow(p));
    const auto rows = static_cast<std::int32_t>(with.rows.size());
    const std::size_t scored = with.scored.size();
    for (std::size_t i = 0; i < with.shadows.size(); ++i) with.scored.push_back(rows + static_cast<std::int32_t>(i));
    const std::vector<float> plain = logits(*warm(), without_any, 0), all = logits(*warm(), with, 0);
    EXPECT_TRUE(std::equal(plain.begin(), plain.end(), all.begin())) << "rows keep their bits";
    std::vector<float> apart = plain;
    for (const ShadowRow& shadow : with.shadows) {
      StepPlan one = without_any;
      one.shadows = {shadow};
      one.scored.push_back(rows);
      const std::vector<float> own = logits(*warm(), one, scored);
      apart.insert(apart.end(), own.begin(), own.end());
    }
    EXPECT_EQ(apart, all);
    const auto first = warm(), second = warm();
    std::vector<SequenceStep> batch{{first.get(), draws.plan(), {}, {}}, {second.get(), with, {}, {}}};
    for (SequenceStep& step : batch) step.request.logits = true;
    EXPECT_EQ((*backend_.forward(batch))[1].logits, all);
    return all;
  }

  Backend& backend_;
  std::int32_t block_;
  bool hides_exactly_;
};

}  // namespace dllm::test
