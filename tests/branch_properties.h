#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "drawn_plans.h"

namespace dllm::test {

/// What must hold of branches on any backend that runs them.
class BranchProperties {
 public:
  BranchProperties(Backend& backend, std::int32_t causal_block) : backend_(backend), block_(causal_block) {
    EXPECT_TRUE(backend.runs_branches());
  }

  /// Logits of all variants, to compare backends.
  std::vector<std::vector<float>> check() {
    chains_are_passes_one_after_the_other();
    branches_live_on();
    std::vector<std::vector<float>> all = variants_are_separate_requests();
    for (const std::uint64_t seed : plan_seeds())
      for (std::vector<float>& one : drawn_trees_are_paths(seed)) all.push_back(std::move(one));
    return all;
  }

 private:
  using Cache = std::unique_ptr<KvCache>;
  static constexpr Position kLength = 100;  // two tiles of attention

  static TokenId shown(Position p, std::int32_t variant) { return (p * 7 + 3 + 11 * variant) % 71; }

  static StepPlan plan_of(std::vector<Position> rows, std::vector<std::int32_t> scored, std::int32_t variant,
                          std::int32_t block) {
    StepPlan plan;
    for (const Position p : rows) plan.rows.push_back({p, shown(p, variant)});
    plan.visible = {{0, kLength}};
    plan.causal_block = block;
    plan.scored = std::move(scored);
    return plan;
  }

  static std::vector<Position> all_of(Position begin, Position end) {
    std::vector<Position> rows;
    for (Position p = begin; p < end; ++p) rows.push_back(p);
    return rows;
  }

  Cache empty() const { return *backend_.make_cache(kLength); }
  Cache warm() const {
    Cache cache = empty();
    run({{cache.get(), plan_of(all_of(0, kLength), {0}, 0, block_)}});
    return cache;
  }
  Cache branch_of(const KvCache& cache, std::span<const PlanRow> pending = {}) const {
    Cache branch = empty();
    branch->follow(cache, pending);
    return branch;
  }

  /// Logits of each step.
  std::vector<std::vector<float>> run(const std::vector<std::pair<KvCache*, StepPlan>>& steps) const {
    std::vector<SequenceStep> batch;
    for (const auto& [cache, plan] : steps) {
      batch.push_back({cache, plan, {}, {}});
      batch.back().request.logits = true;
    }
    const auto scores = backend_.forward(batch);
    std::vector<std::vector<float>> logits;
    if (!scores) {
      ADD_FAILURE() << scores.error().message();
      return std::vector<std::vector<float>>(steps.size());
    }
    for (const Scores& one : *scores) logits.push_back(one.logits);
    return logits;
  }

  /// Rows that the variants write: a block, single rows, and what only some of them write.
  StepPlan variant(std::int32_t index) const {
    std::vector<Position> rows = all_of(60, 70);
    rows.insert(rows.begin(), {3, 20});
    if (index % 2 == 1) rows.push_back(90);
    rows.push_back(kLength - 1);
    StepPlan plan = plan_of(std::move(rows), {0, 2, 11}, index, block_);
    if (index == 2) plan.visible = {{0, 15}, {18, 65}, {66, 99}, {99, 100}};
    if (index == 3) plan.shadows = {{{8, 1}, {{0, 4}, {61, 63}}}, {{64, 70}, {{0, 64}, {65, kLength}}}};
    if (index == 3) plan.scored.insert(plan.scored.end(), {14, 15});
    return plan;
  }

  std::vector<std::vector<float>> variants_are_separate_requests() const {
    constexpr std::int32_t kVariants = 4;
    std::vector<std::vector<float>> separate;
    for (std::int32_t i = 0; i < kVariants; ++i) separate.push_back(run({{warm().get(), variant(i)}})[0]);
    const StepPlan after = plan_of({19, 64, 91}, {0, 1, 2}, 5, block_);
    const std::vector<float> plain = run({{warm().get(), after}})[0];

    const Cache base = warm(), other = warm();
    std::vector<Cache> branches;
    std::vector<std::pair<KvCache*, StepPlan>> together{{other.get(), variant(1)}};
    for (std::int32_t i = 0; i < kVariants; ++i) {
      branches.push_back(branch_of(*base));
      together.emplace_back(branches.back().get(), variant(i));
    }
    const auto logits = run(together);
    EXPECT_EQ(logits[0], separate[1]) << "another sequence of the batch";
    for (std::int32_t i = 0; i < kVariants; ++i)
      EXPECT_EQ(logits[static_cast<std::size_t>(i) + 1], separate[static_cast<std::size_t>(i)]) << i;
    EXPECT_EQ(run({{base.get(), after}})[0], plain) << "nobody else sees a branch's rows";
    EXPECT_NE(separate[0], separate[1]);

    // The branch that is kept: as if it had been alone.
    const Cache alone = warm(), kept = warm(), winner = branch_of(*kept);
    run({{alone.get(), variant(1)}});
    run({{winner.get(), variant(1)}});
    kept->adopt(*winner);
    expect_same_rows(*kept, *alone);
    EXPECT_EQ(run({{kept.get(), after}})[0], run({{alone.get(), after}})[0]);
    return separate;
  }

  /// A branch of a cache whose pass is in the same batch sees what that pass writes; so does the branch's branch.
  void chains_are_passes_one_after_the_other() const {
    const StepPlan first = plan_of(all_of(0, kLength), {1, 66}, 1, block_);
    const StepPlan second = plan_of(all_of(60, 70), {0, 5}, 2, block_);
    const StepPlan third = plan_of({4, 65, 66, 95}, {0, 2}, 3, block_);
    const Cache one = warm();
    std::vector<std::vector<float>> expected;
    for (const StepPlan& plan : {first, second, third}) expected.push_back(run({{one.get(), plan}})[0]);

    const Cache base = warm();
    const Cache next = branch_of(*base, first.rows), last = branch_of(*next, second.rows);
    EXPECT_EQ(run({{base.get(), first}, {next.get(), second}, {last.get(), third}}), expected);
    expect_same_rows(*last, *one);
    next->adopt(*last);
    base->adopt(*next);
    expect_same_rows(*base, *one);
    const StepPlan after = plan_of({19, 64, 91}, {0, 1, 2}, 5, block_);
    EXPECT_EQ(run({{base.get(), after}})[0], run({{one.get(), after}})[0]);

    // Nothing else was in the cache before.
    const Cache fresh = empty(), seen = branch_of(*fresh, first.rows), apart = empty();
    const auto both = run({{fresh.get(), first}, {seen.get(), second}});
    EXPECT_EQ(both[0], run({{apart.get(), first}})[0]);
    EXPECT_EQ(both[1], run({{apart.get(), second}})[0]);

    // One of them is accepted, and the rest is not.
    const Cache again = warm(), accepted = branch_of(*again, first.rows), refused = branch_of(*accepted, third.rows);
    run({{again.get(), first}, {accepted.get(), second}, {refused.get(), third}});
    again->adopt(*accepted);
    const Cache two = warm();
    run({{two.get(), first}});
    run({{two.get(), second}});
    expect_same_rows(*again, *two);
    EXPECT_EQ(run({{again.get(), after}})[0], run({{two.get(), after}})[0]);
  }

  /// A branch that makes several passes keeps its rows, and may begin anew elsewhere.
  void branches_live_on() const {
    const Cache alone = warm(), base = warm(), left = branch_of(*base), right = branch_of(*base);
    const StepPlan before = variant(1), after = plan_of({21, 62, 92}, {0, 1, 2}, 6, block_);
    run({{alone.get(), before}});
    run({{left.get(), before}, {right.get(), variant(0)}});
    EXPECT_EQ(run({{right.get(), variant(0)}, {left.get(), after}})[1], run({{alone.get(), after}})[0]);
    left->follow(*base);
    for (Position p = 0; p < kLength; ++p) EXPECT_EQ(&left->holder(p), base.get());
    EXPECT_EQ(run({{left.get(), after}})[0], run({{warm().get(), after}})[0]);
  }

  /// A drawn tree of branches in one pass: each node is the last of the passes from the root to it, made one after the
  /// other on one cache.
  std::vector<std::vector<float>> drawn_trees_are_paths(std::uint64_t seed) const {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DrawnPlans draws(seed, kLength, block_);
    std::vector<StepPlan> plans;
    std::vector<std::size_t> parent;
    for (std::size_t i = 0; i < 5; ++i) {
      plans.push_back(draws.plan());
      parent.push_back(i == 0 ? 0 : static_cast<std::size_t>(draws.below(static_cast<int>(i))));
    }
    std::vector<Cache> caches;
    caches.push_back(warm());
    std::vector<std::pair<KvCache*, StepPlan>> together{{caches[0].get(), plans[0]}};
    for (std::size_t i = 1; i < plans.size(); ++i) {
      caches.push_back(branch_of(*caches[parent[i]], plans[parent[i]].rows));
      together.emplace_back(caches.back().get(), plans[i]);
    }
    const auto logits = run(together);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      std::vector<std::size_t> path{i};
      while (path.back() != 0) path.push_back(parent[path.back()]);
      const Cache alone = warm();
      std::vector<float> last;
      for (auto node = path.rbegin(); node != path.rend(); ++node) last = run({{alone.get(), plans[*node]}})[0];
      EXPECT_EQ(logits[i], last) << "node " << i;
      expect_same_rows(*caches[i], *alone);
    }
    return logits;
  }

  static void expect_same_rows(const KvCache& actual, const KvCache& expected) {
    EXPECT_EQ(actual.epoch(), expected.epoch());
    for (Position p = 0; p < kLength; ++p) {
      EXPECT_EQ(actual.token_of(p), expected.token_of(p)) << p;
      EXPECT_EQ(actual.epoch_of(p), expected.epoch_of(p)) << p;
      EXPECT_EQ(actual.same_since(p), expected.same_since(p)) << p;
    }
  }

  Backend& backend_;
  std::int32_t block_;
};

}  // namespace dllm::test
