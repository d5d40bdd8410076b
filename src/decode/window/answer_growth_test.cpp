#include "decode/window/answer_growth.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

constexpr TokenId kMaskToken = 99, kStop = 49;

/// A prompt of 3 and 24 masks.
Canvas masks() { return Canvas({1, 2, 3}, 24, kMaskToken); }

Suffix growing(GrowthConfig config) { return {SuffixPolicy::kGrow, 0, config}; }

/// Predictions for the masks of [begin, end): `token` at `confidence`.
std::vector<Candidate> predictions(Position begin, Position end, TokenId token, double confidence) {
  std::vector<Candidate> result;
  for (Position p = begin; p < end; ++p) result.push_back({.position = p, .token = token, .confidence = confidence});
  return result;
}

TEST(AnswerGrowth, DoesNothingForOtherPolicies) {
  const AnswerGrowth growth({SuffixPolicy::kFull}, masks(), {kStop});
  EXPECT_FALSE(growth.on());
  EXPECT_FALSE(growth.measures());
  EXPECT_EQ(growth.end(), 27);
  EXPECT_TRUE(growth.wanted(masks(), 3).empty());
}

TEST(AnswerGrowth, GrowsUntilTheEndIsPredicted) {
  const Canvas canvas = masks();
  AnswerGrowth growth(growing({.initial = 8, .step = 6, .check = 4, .threshold = 0.5}), canvas, {kStop});
  EXPECT_TRUE(growth.measures());
  EXPECT_EQ(growth.end(), 11);
  EXPECT_EQ(growth.wanted(canvas, 3), positions({3, 11}));
  growth.measure(canvas, predictions(3, 11, 7, 0.9));  // no stop token
  EXPECT_TRUE(growth.measures());
  EXPECT_EQ(growth.end(), 17);
  // One stop token of four that are checked, then two: 0.25 and 0.5 of certainty.
  auto some = predictions(3, 17, 7, 0.9);
  some[5] = {.position = 8, .token = kStop, .confidence = 1};
  growth.measure(canvas, some);
  EXPECT_TRUE(growth.measures());
  EXPECT_EQ(growth.end(), 23);
  auto enough = predictions(3, 23, 7, 0.9);
  enough[5] = {.position = 8, .token = kStop, .confidence = 1};
  enough[9] = {.position = 12, .token = kStop, .confidence = 1};
  growth.measure(canvas, enough);
  EXPECT_FALSE(growth.measures());
  EXPECT_EQ(growth.end(), 23);
}

TEST(AnswerGrowth, OnlyTheLastPredictedEndsCount) {
  const Canvas canvas = masks();
  AnswerGrowth growth(growing({.initial = 12, .step = 6, .check = 4, .threshold = 0.5}), canvas, {kStop});
  auto weak = predictions(3, 15, kStop, 1);
  for (std::size_t i = 8; i < 12; ++i) weak[i].confidence = 0.4;
  growth.measure(canvas, weak);  // the last four: 0.4
  EXPECT_TRUE(growth.measures());
}

TEST(AnswerGrowth, EndsAtTheCanvas) {
  const Canvas canvas = masks();
  AnswerGrowth growth(growing({.initial = 20, .step = 100}), canvas, {kStop});
  growth.measure(canvas, predictions(3, 23, 7, 0.9));
  EXPECT_FALSE(growth.measures());
  EXPECT_EQ(growth.end(), 27);
  EXPECT_FALSE(AnswerGrowth(growing({.initial = 24}), canvas, {kStop}).measures());
}

TEST(AnswerGrowth, InsertsMasksAtTheLeastProbablePrediction) {
  Canvas canvas = masks();
  AnswerGrowth growth(growing({.initial = 8, .check = 4, .insert = 4}), canvas, {kStop});
  growth.measure(canvas, predictions(3, 11, kStop, 1));
  ASSERT_FALSE(growth.measures());
  EXPECT_EQ(growth.wanted(canvas, 7), positions({7, 11}));
  auto all = predictions(3, 11, 7, 0.8);
  EXPECT_TRUE(growth.insert(canvas, all, 4).empty());  // all probable
  all[1].confidence = 0.05, all[2].confidence = 0.02, all[6].confidence = 0.01;
  canvas.apply({.position = 4, .token = 5});
  const std::vector<Edit> edits = growth.insert(canvas, all, 4);
  ASSERT_EQ(edits.size(), 3U);  // one mask becomes four; the sixth is not the window's
  for (const Edit& edit : edits) EXPECT_EQ(edit.position, 5);
  EXPECT_EQ(growth.end(), 14);
  canvas.apply({.position = 6, .token = 8});
  for (const Edit& edit : edits) EXPECT_TRUE(canvas.apply(edit));
  EXPECT_EQ(canvas.token(4), 5);
  EXPECT_EQ(canvas.token(9), 8);
  EXPECT_EQ(canvas.masked_count({3, 14}), 9);
}

TEST(AnswerGrowth, InsertsNothingWhereTheEndIsSure) {
  Canvas canvas = masks();
  AnswerGrowth growth(growing({.initial = 12, .check = 4, .insert_until = 0.9}), canvas, {kStop});
  growth.measure(canvas, predictions(3, 15, kStop, 1));
  auto all = predictions(3, 15, kStop, 0.95);
  all[0] = {.position = 3, .token = 7, .confidence = 0.01};
  EXPECT_TRUE(growth.insert(canvas, all, 4).empty());
  // Committed stop tokens count, too.
  for (Position p = 11; p < 15; ++p) canvas.apply({.position = p, .token = kStop});
  EXPECT_TRUE(growth.insert(canvas, predictions(3, 4, 7, 0.01), 1).empty());
}

/// The loop shows no mask beyond what has grown, ends, and keeps what it has written.
TEST(AnswerGrowth, InTheLoop) {
  for (const auto& cache : method_names(caches())) {
    if (cache == "block-causal") continue;
    for (const std::int32_t shift : {0, 1})
      for (const Position insert : {1, 5}) {
        SCOPED_TRACE(cache + ' ' + std::to_string(shift) + ' ' + std::to_string(insert));
        test::FakeBackend backend(test::masked_desc(0, shift));
        backend.tamper = [](RowScore& score) {
          // Low confidences, so that masks are inserted, and an end that is predicted late.
          score.confidence *= 0.12;
          score.log_odds = std::log(score.confidence / (1 - score.confidence));
          if (score.position > 40) score.token = kStop, score.confidence = 0.8, score.log_odds = 1.4;
        };
        test::MethodRun run{.cache = cache};
        run.grid.length = 96;
        run.options.exact_length = false;
        run.options.stop_ids = {kStop};
        run.options.suffix = growing({.initial = 16, .step = 8, .check = 8, .insert = insert});
        const test::MethodResult result = test::run_method(backend, run);
        ASSERT_TRUE(result.finished);
        ASSERT_TRUE(result.stop.has_value());
        std::size_t inserted = 0;
        for (const DenoiseStep& step : result.steps)
          inserted += static_cast<std::size_t>(
              std::ranges::count(step.edits, EditKind::kInsert, [](const Edit& edit) { return edit.kind; }));
        EXPECT_EQ(inserted > 0, insert > 1);
        EXPECT_TRUE(result.steps.front().edits.empty());  // a pass that measures
        Position seen = 0;
        for (const StepPlan& plan : backend.plans) {
          EXPECT_GE(plan.visible.back().end, seen);
          seen = plan.visible.back().end;
        }
        if (insert == 1) {
          EXPECT_LT(seen, run.prompt + run.grid.length);
        }
        for (Position p = run.prompt; p <= *result.stop; ++p)
          EXPECT_NE(result.tokens[static_cast<std::size_t>(p)], kMaskToken);
      }
  }
}

}  // namespace
}  // namespace dllm
