#include "decode/window/window.h"

#include <gtest/gtest.h>

#include "decode/testing/run_method.h"
#include "decode/window/acceptance.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::make_window;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::run_method;

Canvas canvas_with(Position prompt, Position length, const std::vector<Position>& committed) {
  Canvas canvas(std::vector<TokenId>(static_cast<std::size_t>(prompt), 1), length, 99);
  for (Position p : committed) canvas.apply({p, 7, EditKind::kCommit, 1});
  return canvas;
}

WindowStep step_of(Window& window, const Canvas& canvas) {
  const auto step = window.next(canvas);
  EXPECT_TRUE(step);
  return step.value_or(WindowStep{});
}

TEST(SlidingWindow, FollowsTheFrontierOnePassLate) {
  const auto window = *make_window({"sliding"}, {BlockOrigin::kPromptEnd, 8});
  EXPECT_EQ(step_of(*window, canvas_with(4, 30, {})).range, (PositionRange{4, 12}));
  window->observe({});
  const Canvas next = canvas_with(4, 30, {4, 5, 8});
  EXPECT_EQ(step_of(*window, next).range, (PositionRange{4, 14})) << "4 and 5 stay for a pass, 6 is the frontier";
  EXPECT_EQ(step_of(*window, next).range, (PositionRange{4, 14})) << "asked twice";
  EXPECT_EQ(step_of(*window, next).unit, 4);
  window->observe({});
  EXPECT_EQ(step_of(*window, next).range, (PositionRange{6, 14}));
  const auto early = *make_window({"sliding", {{"slide_at_once", true}}}, {BlockOrigin::kPromptEnd, 8});
  early->next(canvas_with(4, 30, {}));
  early->observe({});
  EXPECT_EQ(step_of(*early, next).range, (PositionRange{6, 14}));
}

// Whichever way it slides, no row before the window keeps the K/V of a mask.
TEST(SlidingWindow, RowsBehindItAreMadeFromTheirTokens) {
  for (const bool late : {true, false})
    for (const auto& cache : test::names_for(caches(), masked_desc())) {
      MethodRun run{.window = "sliding", .cache = cache};
      run.window_config["slide_at_once"] = !late;
      run.cache_config["refresh"] = "once";
      run.cache_config["prefix_look"] = run.cache_config["after_look"] = 0;
      run.grid.length = 40;
      FakeBackend backend(masked_desc());
      const MethodResult result = run_method(backend, run);
      ASSERT_TRUE(result.finished);
      std::vector<TokenId> kept(static_cast<std::size_t>(run.prompt + 40), -1);
      for (std::size_t i = 0; i < backend.plans.size(); ++i) {
        for (const PlanRow& row : backend.plans[i].rows) kept[static_cast<std::size_t>(row.position)] = row.token;
        for (Position p = run.prompt; p < result.steps[i].window.begin; ++p)
          EXPECT_EQ(kept[static_cast<std::size_t>(p)], result.tokens[static_cast<std::size_t>(p)])
              << cache << " pass " << i << " position " << p;
      }
    }
}

TEST(PipelineWindow, ABlockBeginsWhenItsShareOfTheLastIsDecided) {
  const auto window = *make_window({"pipeline", {{"begin_share", 0.25}}}, {BlockOrigin::kPromptEnd, 8});
  EXPECT_EQ(step_of(*window, canvas_with(4, 30, {})).range, (PositionRange{4, 12}));
  window->observe({});
  EXPECT_EQ(step_of(*window, canvas_with(4, 30, {6})).range, (PositionRange{4, 12})) << "an eighth";
  window->observe({});
  const Canvas quarter = canvas_with(4, 30, {6, 9});
  EXPECT_EQ(step_of(*window, quarter).range, (PositionRange{4, 20}));
  EXPECT_EQ(step_of(*window, quarter).range, (PositionRange{4, 20})) << "asked twice";
  window->observe({});
  // The first block is finished, and so is the second: one more begins in each pass, the last one is clipped.
  std::vector<Position> done(16);
  for (Position i = 0; i < 16; ++i) done[static_cast<std::size_t>(i)] = 4 + i;
  EXPECT_EQ(step_of(*window, canvas_with(4, 30, done)).range, (PositionRange{20, 28}));
  window->observe({});
  done.insert(done.end(), {20, 21});
  EXPECT_EQ(step_of(*window, canvas_with(4, 30, done)).range, (PositionRange{20, 34}));
  EXPECT_EQ(step_of(*window, canvas_with(4, 30, done)).unit, 20);
}

TEST(AdaptiveWindow, AllowanceStopsWhereTheCostJumps) {
  const LatencyTable latency({{1, 10}, {8, 10}, {16, 10.5}, {17, 30}, {64, 40}}, 0);
  MethodContext grid{BlockOrigin::kPromptEnd, 8, &latency};
  MethodChoice choice{"adaptive", {{"max_window", 64}}};
  const auto window = *make_window(choice, grid);
  EXPECT_EQ(step_of(*window, canvas_with(4, 60, {})).range, (PositionRange{4, 20}));
  choice.options["allowance"] = 3.5;
  EXPECT_EQ(step_of(**make_window(choice, grid), canvas_with(4, 60, {})).range.size(), 60);
  choice.options["allowance"] = 0;
  EXPECT_EQ(step_of(**make_window(choice, grid), canvas_with(4, 60, {})).range.size(), 8);
  grid.latency = nullptr;
  EXPECT_EQ(step_of(**make_window(choice, grid), canvas_with(4, 60, {})).range.size(), 8) << "cost unknown";
}

TEST(AdaptiveWindow, RateWeighsAcceptanceAgainstCost) {
  // Rows are free: as wide as allowed. Rows are the whole cost: the likeliest few.
  const LatencyTable flat({{1, 10}, {64, 10}}, 0), steep({{1, 1}, {64, 64}}, 0);
  MethodContext grid{BlockOrigin::kPromptEnd, 8, &flat};
  const MethodChoice choice{"adaptive", {{"objective", "rate"}}};
  EXPECT_EQ(step_of(**make_window(choice, grid), canvas_with(4, 60, {})).range.size(), 32);
  grid.latency = &steep;
  EXPECT_EQ(step_of(**make_window(choice, grid), canvas_with(4, 60, {})).range.size(), 4);
  // A step costs as much as 20 rows; offsets 0 to 11 are always accepted, later ones never.
  const LatencyTable mixed({{1, 21}, {101, 121}}, 0);
  grid.latency = &mixed;
  const auto window = *make_window(choice, grid);
  for (int pass = 0; pass < 200; ++pass) {
    WindowFeedback feedback;
    for (Position offset = 0; offset < 32; ++offset) feedback.looks.push_back({offset, offset < 12});
    window->observe(feedback);
  }
  EXPECT_EQ(step_of(*window, canvas_with(4, 60, {})).range.size(), 12);
}

TEST(LookaheadWindow, DraftsBehindABlockThatIsNearlyDone) {
  const LatencyTable latency({{1, 10}, {13, 11}, {14, 20}, {64, 70}}, 0);
  MethodContext grid{BlockOrigin::kPromptEnd, 8, &latency};
  const MethodChoice choice{"lookahead", {{"lookahead_masks", 2}}};
  const auto window = *make_window(choice, grid);
  const WindowStep open = step_of(*window, canvas_with(4, 60, {}));
  EXPECT_EQ(open.range, (PositionRange{4, 12}));
  EXPECT_LE(open.ahead, 12);
  const WindowStep few = step_of(*window, canvas_with(4, 60, {4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(few.range, (PositionRange{4, 12}));
  EXPECT_EQ(few.ahead, 17) << "13 rows in all stay within a tenth";
  EXPECT_LE(step_of(*window, canvas_with(4, 10, {4, 5, 6, 7, 8, 9})).ahead, 14) << "the canvas ends";
  grid.latency = nullptr;
  EXPECT_EQ(step_of(**make_window(choice, grid), canvas_with(4, 60, {4, 5, 6, 7, 8, 9})).ahead, 18)
      << "cost unknown: as many rows as the block no longer needs";
}

TEST(LookaheadWindow, RateStopsLookingWhereDraftsAreNeverAccepted) {
  const LatencyTable latency({{1, 10}, {64, 30}}, 0);
  const MethodContext grid{BlockOrigin::kPromptEnd, 8, &latency};
  const MethodChoice choice{"lookahead", {{"objective", "rate"}}};
  const auto learns = [&](bool accepted) {
    const auto window = *make_window(choice, grid);
    for (int pass = 0; pass < 200; ++pass) {
      WindowFeedback feedback;
      feedback.looks = {{0, true}};
      for (Position offset = 0; offset < 24; ++offset) feedback.drafts.push_back({offset, accepted});
      window->observe(feedback);
    }
    const WindowStep step = step_of(*window, canvas_with(4, 60, {4, 5, 6, 7, 8, 9}));
    return std::max(0, step.ahead - step.range.end);
  };
  EXPECT_EQ(learns(true), 24);
  EXPECT_EQ(learns(false), 0);
}

TEST(Drafts, NeverTouchThePrefixAndAreLookedAtAgain) {
  const LatencyTable latency({{1, 10}, {64, 10}}, 0);
  for (const bool show : {false, true}) {
    MethodRun run{.window = "lookahead", .cache = "dual", .decoder = "low-confidence"};
    run.grid.latency = &latency;
    run.window_config = {{"draft_threshold", 0.2}, {"show_drafts", show}};
    FakeBackend backend(masked_desc());
    const MethodResult result = run_method(backend, run);
    ASSERT_TRUE(result.finished);
    bool drafted = false, shown = false;
    for (std::size_t i = 0; i < backend.plans.size(); ++i) {
      const DenoiseStep& step = result.steps[i];
      for (const Edit& edit : step.edits) EXPECT_TRUE(step.window.contains(edit.position)) << "pass " << i;
      for (std::int32_t index : backend.plans[i].scored) {
        const PlanRow& row = backend.plans[i].rows[static_cast<std::size_t>(index)];
        drafted = drafted || row.position >= step.window.end;
      }
      for (const PlanRow& row : backend.plans[i].rows)
        shown = shown || (row.position >= step.window.end && row.token != 99);
    }
    EXPECT_TRUE(drafted);
    EXPECT_EQ(shown, show);
    EXPECT_LE(result.counters.nfe, 24);
  }
}

/// Predictions that depend on the position only, so that every draft is confirmed.
void sure_tokens(RowScore& score) {
  score.token = score.position % 40;
  score.confidence = 0.8;
  score.log_odds = std::log(0.8 / 0.2) - score.position * 1e-6;
}

TEST(Drafts, ConfirmedDraftsSavePasses) {
  const LatencyTable latency({{1, 10}, {64, 10}}, 0);
  MethodRun run{.window = "block", .decoder = "low-confidence"};
  const auto passes = [&](const std::string& window, const char* acceptance, double threshold) {
    run.window = window;
    run.grid.latency = &latency;
    run.window_config["lookahead_masks"] = 1;
    run.window_config["max_window"] = 16;
    run.window_config["draft_acceptance"] = acceptance;
    run.window_config["draft_threshold"] = threshold;
    FakeBackend backend(masked_desc());
    backend.tamper = sure_tokens;
    const MethodResult result = run_method(backend, run);
    for (Position p = 5; p < 29; ++p) EXPECT_EQ(result.tokens[static_cast<std::size_t>(p)], p % 40);
    return result.counters.nfe;
  };
  EXPECT_EQ(passes("block", "recheck", 0.7), 24);
  // The first block takes 8 passes, and the last of them drafts the second block. One pass confirms that and leaves no
  // mask, so it drafts nothing; the third block takes 8 passes.
  EXPECT_EQ(passes("lookahead", "recheck", 0.7), 8 + 1 + 8);
  EXPECT_EQ(passes("lookahead", "instant", 0.7), 8 + 8) << "accepted without a pass";
  EXPECT_EQ(passes("lookahead", "recheck", 0.9), 24) << "not sure enough";
  EXPECT_EQ(passes("lookahead", "instant", 0.9), 24);
}

TEST(Drafts, WithTheTriggerOffLookaheadIsBlocks) {
  for (const auto& cache : test::names_for(caches(), masked_desc())) {
    MethodRun run{.window = "lookahead", .cache = cache};
    run.window_config["lookahead_masks"] = 0;
    FakeBackend a(masked_desc()), b(masked_desc());
    const MethodResult ours = run_method(a, run);
    run.window = "block";
    const MethodResult blocks = run_method(b, run);
    EXPECT_EQ(ours.tokens, blocks.tokens);
    EXPECT_EQ(ours.commit_pass, blocks.commit_pass);
    EXPECT_EQ(ours.counters.rows_forwarded, blocks.counters.rows_forwarded);
  }
}

TEST(Drafts, NothingIsDraftedBehindAStopToken) {
  MethodRun run{.window = "lookahead", .decoder = "low-confidence"};
  run.options.exact_length = false;
  run.options.stop_ids = {49};
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) {
    score.token = score.position == 12 ? 49 : 1;
    score.log_odds = score.position == 12 ? 100 : -score.position;
  };
  const MethodResult result = run_method(backend, run);
  EXPECT_EQ(result.stop, 12);
  for (std::size_t i = 1; i < backend.plans.size(); ++i)
    for (std::int32_t index : backend.plans[i].scored)
      EXPECT_LT(backend.plans[i].rows[static_cast<std::size_t>(index)].position, 13);
}

TEST(Windows, TheSameTableGivesTheSameDecisions) {
  const LatencyTable latency({{1, 3}, {8, 3.3}, {16, 4}, {32, 9}}, 0.001);
  for (const auto& window : method_names(windows()))
    for (const char* objective : {"allowance", "rate"}) {
      MethodRun run{.window = window, .cache = "dual"};
      run.grid.latency = &latency;
      run.window_config["objective"] = objective;
      FakeBackend a(masked_desc()), b(masked_desc());
      const MethodResult first = run_method(a, run), second = run_method(b, run);
      EXPECT_EQ(first.tokens, second.tokens);
      ASSERT_EQ(a.plans.size(), b.plans.size());
      for (std::size_t i = 0; i < a.plans.size(); ++i) EXPECT_EQ(a.plans[i].rows, b.plans[i].rows);
    }
}

TEST(SemanticWindow, EndsWithTheSurestLineBreak) {
  const auto window =
      *make_window({"semantic", {{"delimiter_confidence", 0.3}}}, {.block_length = 8, .length = 40, .newlines = {5}});
  Canvas canvas({1, 2}, 40, 99);
  const auto first = *window->next(canvas);
  EXPECT_EQ(first.range, (PositionRange{2, 12}));  // a quarter of the answer
  std::vector<Candidate> predictions;
  for (Position p = 2; p < 12; ++p) predictions.push_back({.position = p, .token = 7, .confidence = 0.9});
  predictions[3] = {.position = 5, .token = 5, .confidence = 0.4};
  predictions[8] = {.position = 10, .token = 5, .confidence = 0.6};
  EXPECT_EQ(window->cut(first.range, predictions), 11);
  EXPECT_EQ(window->next(canvas)->range, (PositionRange{2, 11}));
  for (Position p = 2; p < 11; ++p) canvas.apply({.position = p, .token = 7});
  const auto second = *window->next(canvas);
  EXPECT_EQ(second.range, (PositionRange{11, 21}));
  EXPECT_NE(second.unit, first.unit);
  // No line break that is sure enough: the usual length.
  predictions.assign(1, {.position = 20, .token = 5, .confidence = 0.2});
  EXPECT_EQ(window->cut(second.range, predictions), 19);
  for (Position p = 11; p < 40; ++p) canvas.apply({.position = p, .token = 7});
  EXPECT_EQ(window->next(canvas)->range, (PositionRange{40, 42}));  // the canvas ends
}

/// Nothing after the line break is decided by the pass that finds it.
TEST(SemanticWindow, TheFirstPassDecidesInsideTheBlockOnly) {
  test::FakeBackend backend(test::masked_desc());
  backend.tamper = [](RowScore& score) {
    score.confidence = 0.95, score.log_odds = 2.9;
    score.token = score.position % 6 == 4 ? 5 : 7;
  };
  test::MethodRun run{.window = "semantic"};
  run.grid.newlines = {5};
  run.grid.length = 32;
  const test::MethodResult result = test::run_method(backend, run);
  ASSERT_TRUE(result.finished);
  // The prompt has 5 tokens. Line breaks at 10, 16, ...; a quarter of the answer is 8.
  EXPECT_EQ(result.steps[0].window, (PositionRange{5, 11}));
  EXPECT_EQ(result.steps[0].edits.size(), 6U);
  EXPECT_EQ(result.steps[1].window, (PositionRange{11, 17}));
  EXPECT_EQ(result.steps.back().window.end, 37);
}

}  // namespace
}  // namespace dllm
