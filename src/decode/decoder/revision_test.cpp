#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::run_method;

// With equal thresholds, no lookahead and no revision it equals the threshold decoder.
TEST(Revision, EqualThresholdsWithoutRevisionsAreTheThresholdDecoder) {
  for (const auto& window : method_names(windows()))
    for (const double threshold : {0.5, 0.9, 1.1}) {
      MethodRun run{.window = window, .decoder = "threshold"};
      run.config["threshold"] = run.config["visible_threshold"] = run.config["stable_threshold"] = threshold;
      run.config["max_revisions"] = 0;
      run.config["drain_rounds"] = 0;
      FakeBackend a(masked_desc()), b(masked_desc());
      const MethodResult plain = run_method(a, run);
      run.decoder = "revision";
      const MethodResult ours = run_method(b, run);
      EXPECT_EQ(ours.tokens, plain.tokens);
      EXPECT_EQ(ours.commit_pass, plain.commit_pass);
      EXPECT_EQ(ours.counters.nfe, plain.counters.nfe);
    }
}

/// Predictions by position and by whether the row shows the mask.
struct Script {
  struct Prediction {
    TokenId token;
    double confidence;
  };
  std::map<Position, Prediction> masked, shown;
};

void predict(RowScore& score, Script::Prediction p) {
  score.token = p.token;
  score.confidence = p.confidence;
  score.log_odds = std::log(p.confidence / (1 - p.confidence));
  score.overruled = false;
}

MethodRun two_blocks() {
  MethodRun run{.cache = "dual", .decoder = "revision"};
  run.prompt = 2;
  run.grid.block_length = 4;
  run.grid.length = 8;
  return run;
}

// Confidences from position 2: one mask is stable, then each run of masks that are left shows its best above 0.3.
TEST(Revision, ShowsTheBestOfEachRunOfMasks) {
  const double confidence[] = {0.2, 0.45, 0.4, 0.99, 0.35, 0.2, 0.25, 0.31};
  const auto decode = [&](bool force_stable) {
    FakeBackend backend(masked_desc());
    backend.tamper = [&](RowScore& score) {
      predict(score, {static_cast<TokenId>(score.position), confidence[score.position - 2]});
    };
    MethodRun run{.cache = "none", .decoder = "revision"};
    run.prompt = 2;
    run.grid.block_length = run.grid.length = 8;
    run.config["run_threshold"] = 0.3;
    run.config["force_stable"] = force_stable;
    return std::pair(run_method(backend, run), backend.plans);
  };
  const auto [result, plans] = decode(false);
  ASSERT_TRUE(result.finished);
  const auto pass_of = [&](Position position) { return result.commit_pass[static_cast<std::size_t>(position - 2)]; };
  const std::int32_t first = pass_of(5);
  EXPECT_EQ(pass_of(3), first + 1);
  EXPECT_EQ(pass_of(6), first + 1);
  EXPECT_EQ(pass_of(4), first + 2);
  EXPECT_EQ(pass_of(9), first + 2);
  // Below the threshold only the surest mask of all is shown.
  EXPECT_EQ(pass_of(8), first + 3);
  EXPECT_EQ(std::max(pass_of(2), pass_of(7)), first + 5);
  // Drafts are never final: each is scored in every pass after its own, unlike the stable token.
  const auto scored = [&](std::size_t pass, Position position) {
    const StepPlan& plan = plans[pass];
    return std::ranges::any_of(plan.scored,
                               [&](auto row) { return plan.rows[static_cast<std::size_t>(row)].position == position; });
  };
  for (std::size_t pass = 2; pass < 5; ++pass) {
    EXPECT_TRUE(scored(pass, 3)) << pass;
    EXPECT_FALSE(scored(pass, 5)) << pass;
  }
  const auto [forced, forced_plans] = decode(true);
  EXPECT_EQ(forced.commit_pass, result.commit_pass);
  const StepPlan& third = forced_plans[2];
  EXPECT_TRUE(std::ranges::any_of(third.scored, [&](auto row) {
    return third.rows[static_cast<std::size_t>(row)].position == 3;
  })) << "a draft is not what force_stable is about";
}

// Position 3 is visible at 0.8; when the second block is decoded, the model prefers another token there.
TEST(Revision, ChangesAVisibleTokenBehindTheWindow) {
  FakeBackend backend(masked_desc());
  int block_two_passes = 0;
  backend.tamper = [&](RowScore& score) {
    const bool later = score.position >= 6;
    block_two_passes += score.position == 9 ? 1 : 0;
    if (score.position == 3) {
      const bool second_look = block_two_passes > 0 || backend.plans.size() > 1;
      predict(score, second_look ? Script::Prediction{8, 0.95} : Script::Prediction{7, 0.8});
    } else {
      predict(score, {5, later && backend.plans.size() < 4 ? 0.6 + 0.01 * score.position : 0.99});
    }
  };
  const MethodResult result = run_method(backend, two_blocks());
  ASSERT_TRUE(result.finished);
  EXPECT_EQ(result.tokens[3], 8);
  bool behind = false;
  for (std::size_t i = 0; i < backend.plans.size(); ++i)
    for (const PlanRow& row : backend.plans[i].rows)
      behind = behind || (row.position == 3 && result.steps[i].window.begin > 3 && backend.plans[i].rows.size() < 10);
  EXPECT_TRUE(behind) << "its row was part of the second block's pass";
}

// Position 3 misleads its neighbours, which become final before it changes.
TEST(Revision, AChangeReopensWhatCameAfterIt) {
  for (const bool reopen : {false, true}) {
    FakeBackend backend(masked_desc());
    backend.tamper = [&](RowScore& score) {
      const std::size_t pass = backend.plans.size();
      if (score.position == 3) {
        predict(score, pass < 3 ? Script::Prediction{7, 0.75} : Script::Prediction{8, 0.95});
      } else if (score.position < 6) {
        predict(score, {pass < 3 ? 1 : 9, pass == 1 ? 0.5 : 0.95});
      } else {
        predict(score, {5, 0.99});
      }
    };
    MethodRun run = two_blocks();
    run.config["reopen"] = reopen;
    const MethodResult result = run_method(backend, run);
    ASSERT_TRUE(result.finished);
    const TokenId neighbour = reopen ? 9 : 1;
    EXPECT_EQ(result.tokens, (std::vector<TokenId>{1, 2, neighbour, 8, neighbour, neighbour, 5, 5, 5, 5}));
  }
}

TEST(Revision, StableTokensHaveNoLogits) {
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) {
    predict(score, {static_cast<TokenId>(score.position), score.position % 2 ? 0.95 : 0.5});
  };
  const MethodResult result = run_method(backend, two_blocks());
  ASSERT_TRUE(result.finished);
  for (std::size_t i = 1; i < backend.plans.size(); ++i)
    for (std::int32_t index : backend.plans[i].scored) {
      const Position p = backend.plans[i].rows[static_cast<std::size_t>(index)].position;
      if (p % 2 == 0) continue;
      EXPECT_GT(result.steps[i].window.end, 6) << "position " << p << " in pass " << i;
      EXPECT_GE(p, result.steps[i].window.begin);
    }
}

TEST(Revision, RefreshesAtMostSoManyRowsOldestFirst) {
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) { predict(score, {static_cast<TokenId>(score.position), 0.75}); };
  MethodRun run{.cache = "dual", .decoder = "revision"};
  run.prompt = 0;
  run.grid.length = 24;
  run.config["refresh_rows"] = 3;
  run.config["visible_threshold"] = 0.9;  // one token per pass, none of them stable
  run.config["stable_threshold"] = 0.95;
  const MethodResult result = run_method(backend, run);
  ASSERT_TRUE(result.finished);
  std::map<Position, std::size_t> last;  // pass of the last review; the last token is reviewed for the first time
  std::size_t passes = 0;
  for (std::size_t i = 0; i < backend.plans.size(); ++i) {
    std::map<Position, std::size_t> now = last;
    std::size_t youngest = 0, behind = 0;
    for (std::int32_t index : backend.plans[i].scored) {
      const Position p = backend.plans[i].rows[static_cast<std::size_t>(index)].position;
      now[p] = i;
      if (p >= 8) continue;
      youngest = std::max(youngest, last[p]);
      ++behind;
    }
    if (result.steps[i].window.begin == 8) {
      EXPECT_EQ(behind, 3u) << "pass " << i;
      for (Position p = 0; p < 8; ++p)
        EXPECT_TRUE(now[p] == i || last[p] >= youngest) << "pass " << i << ": " << p << " is unseen for longer";
      ++passes;
    }
    last = now;
  }
  EXPECT_EQ(passes, 8u);
}

TEST(Revision, DrainsAtTheEndAndThenAccepts) {
  for (const std::int32_t rounds : {0, 1, 2}) {
    FakeBackend backend(masked_desc());
    backend.tamper = [&](RowScore& score) {  // always a different token, never certain
      predict(score, {static_cast<TokenId>(backend.plans.size() % 7), 0.75});
    };
    MethodRun run = two_blocks();
    run.config["drain_rounds"] = rounds;
    run.config["max_revisions"] = 1000;
    const MethodResult result = run_method(backend, run);
    ASSERT_TRUE(result.finished);
    EXPECT_EQ(result.counters.nfe, 2 + rounds) << "each block goes in one pass";
  }
  FakeBackend settled(masked_desc());
  settled.tamper = [](RowScore& score) { predict(score, {4, 0.75}); };
  MethodRun run = two_blocks();
  run.config["drain_rounds"] = 5;
  EXPECT_EQ(run_method(settled, run).counters.nfe, 2 + 1) << "a round that changes nothing is the last";
}

TEST(Revision, StopTokensCountOnceNothingBeforeThemIsOpen) {
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) { predict(score, {score.position == 4 ? 49 : 1, 0.75}); };
  MethodRun run = two_blocks();
  run.options.exact_length = false;
  run.options.stop_ids = {49};
  const MethodResult result = run_method(backend, run);
  EXPECT_EQ(result.stop, 4);
  EXPECT_EQ(result.counters.nfe, 2) << "one for the block, one drain; the second block is never begun";
  for (std::int32_t index : backend.plans.back().scored)
    EXPECT_LE(backend.plans.back().rows[static_cast<std::size_t>(index)].position, 4);
}

TEST(Revision, LeaveOneOutShowsTheMaskAndMendsTheRow) {
  FakeBackend backend(masked_desc());
  MethodRun run{.cache = "dual", .decoder = "revision"};
  run.config["leave_one_out"] = true;
  run.config["visible_threshold"] = 0.3;
  run.config["stable_threshold"] = 2;
  run.config["refresh_rows"] = 2;
  run.config["drain_rounds"] = 0;
  const MethodResult result = run_method(backend, run);
  ASSERT_TRUE(result.finished);
  bool any = false;
  for (std::size_t i = 0; i + 1 < backend.plans.size(); ++i)
    for (const PlanRow& row : backend.plans[i].rows) {
      if (row.position >= result.steps[i].window.begin || row.position < run.prompt || row.token != 99) continue;
      any = true;
      bool again = false;
      for (const PlanRow& next : backend.plans[i + 1].rows) again = again || next.position == row.position;
      EXPECT_TRUE(again) << "pass " << i << " position " << row.position;
    }
  EXPECT_TRUE(any);
}

TEST(Revision, EndsWhateverThePredictions) {
  for (const bool remask : {false, true})
    for (const auto& window : method_names(windows()))
      for (const auto& cache : method_names(caches())) {
        FakeBackend backend(masked_desc());
        MethodRun run{.window = window, .cache = cache, .decoder = "revision"};
        run.config["remask_visible"] = remask;
        run.config["reopen"] = true;
        run.config["visible_threshold"] = 0.2;
        run.config["remask_threshold"] = 0.5;
        EXPECT_TRUE(run_method(backend, run).finished) << window << ' ' << cache;
        run.config["run_threshold"] = 0.1;
        FakeBackend again(masked_desc());
        EXPECT_TRUE(run_method(again, run).finished) << window << ' ' << cache << " with drafts of runs";
      }
}

}  // namespace
}  // namespace dllm
