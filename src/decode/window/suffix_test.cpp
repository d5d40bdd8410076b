#include "decode/window/suffix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "decode/cache/cache_policy.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::run_method;

TEST(Suffix, NearAndNoneHideTheMasksBehindTheWindow) {
  for (const auto& cache : test::names_for(caches(), masked_desc()))
    for (const WindowEntry& entry : windows()) {
      if (std::ranges::count(entry.unread, "suffix") > 0) continue;
      const std::string& window = entry.info.name;
      SCOPED_TRACE(cache + ' ' + window);
      MethodRun run{.window = window, .cache = cache, .decoder = "low-confidence"};
      run.options.suffix = {SuffixPolicy::kNear, 4};
      FakeBackend near(masked_desc());
      ASSERT_TRUE(run_method(near, run).finished);
      for (const StepPlan& plan : near.plans) EXPECT_LE(plan.rows.back().position, plan.visible.back().end - 1);
      EXPECT_EQ(near.plans[0].visible.back().end, 5 + 8 + 4);
      EXPECT_EQ(near.plans[0].rows.back().position, 5 + 8 + 4 - 1);
      run.options.suffix = {SuffixPolicy::kNone};
      FakeBackend none(masked_desc()), grown(masked_desc());
      ASSERT_TRUE(run_method(none, run).finished);
      EXPECT_EQ(none.plans[0].visible.back().end, 5 + 8);
      EXPECT_EQ(none.plans.back().visible.back().end, 5 + 24);
      run.options.suffix = {SuffixPolicy::kNear, 1000};
      const MethodResult wide = run_method(grown, run);
      run.options.suffix = {};
      FakeBackend full(masked_desc());
      EXPECT_EQ(wide.tokens, run_method(full, run).tokens);
    }
}

TEST(Suffix, SparseHidesMoreMasksTheFartherTheyAre) {
  const auto shown = [](Position end, Position near) {
    std::vector<Position> result;
    for (Position p = end; p < end + 40; ++p)
      if (shows_sparsely(p, end, near)) result.push_back(p);
    return result;
  };
  EXPECT_EQ(shown(13, 4), (std::vector<Position>{13, 14, 15, 16, 18, 20, 24, 28, 32, 40, 48}));
  EXPECT_EQ(shown(13, 0), shown(13, 1));
  for (const Position end : {0, 7, 32})
    for (const Position p : shown(end, 4))
      for (Position nearer = end; nearer <= p; ++nearer)
        EXPECT_TRUE(shows_sparsely(p, nearer, 4)) << p << " is hidden again when the window ends at " << nearer;
}

TEST(Suffix, SparseKeepsTheLengthOfTheCanvasInSight) {
  for (const auto& cache : test::names_for(caches(), masked_desc()))
    for (const WindowEntry& entry : windows()) {
      if (std::ranges::count(entry.unread, "suffix") > 0) continue;
      SCOPED_TRACE(cache + ' ' + entry.info.name);
      MethodRun run{.window = entry.info.name, .cache = cache, .decoder = "low-confidence"};
      run.options.suffix = {SuffixPolicy::kSparse, 4};
      FakeBackend sparse(masked_desc()), wide(masked_desc()), full(masked_desc());
      ASSERT_TRUE(run_method(sparse, run).finished);
      std::vector<Position> first;
      for (const PlanRow& row : sparse.plans[0].rows) first.push_back(row.position);
      std::vector<Position> expected = positions({0, 5 + 8 + 4});
      expected.insert(expected.end(), {18, 20, 24, 28});
      EXPECT_EQ(first, expected);
      EXPECT_EQ(sparse.plans.back().visible, (std::vector<PositionRange>{{0, 5 + 24}}));

      run.options.suffix = {SuffixPolicy::kSparse, 1000};
      const MethodResult all = run_method(wide, run);
      run.options.suffix = {};
      EXPECT_EQ(all.tokens, run_method(full, run).tokens);
      ASSERT_EQ(wide.plans.size(), full.plans.size());
      for (std::size_t i = 0; i < full.plans.size(); ++i) EXPECT_EQ(wide.plans[i].rows, full.plans[i].rows);
    }
}

}  // namespace
}  // namespace dllm
