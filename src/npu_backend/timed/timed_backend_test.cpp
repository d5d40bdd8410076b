#include "npu_backend/timed/timed_backend.h"

#include <gtest/gtest.h>

#include "model/architecture.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

struct Pieces {
  ModelShape shape = *load_model_shape("llada-8b");
  std::unique_ptr<TimedBackend> backend;

  explicit Pieces(const std::string& device, const TimerOptions& options = {}) {
    ModelDesc desc = shape.desc;
    desc.mask = 0;
    desc.stop_ids = {1};
    auto made = TimedBackend::create(
        std::make_unique<ValuelessBackend>(desc), *load_device(device),
        [this](StepShape step) { return shape.architecture->build(shape.desc, step); }, options);
    EXPECT_TRUE(made) << made.error().message();
    backend = *std::move(made);
  }
};

SequenceStep rows(KvCache& cache, Position begin, Position end, std::int32_t scored) {
  SequenceStep step{&cache, {}, {}, std::nullopt};
  for (Position p = begin; p < end; ++p) step.plan.rows.push_back({p, 0});
  for (std::int32_t i = 0; i < scored; ++i) step.plan.scored.push_back(i);
  step.plan.visible = {{0, end}};
  return step;
}

TEST(TimedBackend, AdvancesByTheStepsThatRun) {
  Pieces pieces("mobile-sm8750");
  const auto cache = *pieces.backend->make_cache(160);
  const SequenceStep prompt = rows(*cache, 0, 96, 32), block = rows(*cache, 64, 96, 32);
  for (const SequenceStep& step : {prompt, block, block}) {
    const auto scores = pieces.backend->forward({&step, 1});
    ASSERT_TRUE(scores) << scores.error().message();
    ASSERT_EQ(scores->front().rows.size(), 32);
    EXPECT_EQ(scores->front().rows[3].token, 2);  // neither the mask nor the end
  }
  const auto& steps = pieces.backend->clock().steps();
  ASSERT_EQ(steps.size(), 3);
  EXPECT_EQ(steps[0].work, (StepTotals{1, 96, 32, 96}));
  EXPECT_GT(steps[0].time.seconds(), steps[1].time.seconds());
  EXPECT_EQ(steps[1].time.seconds(), steps[2].time.seconds());
  EXPECT_DOUBLE_EQ(pieces.backend->clock().sum().seconds(), steps[0].time.seconds() + 2 * steps[1].time.seconds());
  EXPECT_TRUE(cache->holds({0, 96}));
  pieces.backend->clock().reset();
  EXPECT_EQ(pieces.backend->clock().sum().seconds(), 0);
}

/// Each state has its rows, and reads all K and V that it sees.
TEST(TimedBackend, PricesBranchesAsSequences) {
  Pieces pieces("mobile-sm8750");
  const auto cache = *pieces.backend->make_cache(160), branch = *pieces.backend->make_cache(160);
  const auto other = *pieces.backend->make_cache(160);
  const SequenceStep prompt = rows(*cache, 0, 96, 32), block = rows(*cache, 64, 96, 32);
  ASSERT_TRUE(pieces.backend->forward({&prompt, 1}));
  branch->follow(*cache);
  const std::vector<SequenceStep> states = {block, rows(*branch, 64, 96, 32)};
  ASSERT_TRUE(pieces.backend->forward(states));
  ASSERT_TRUE(pieces.backend->forward(std::vector{rows(*other, 0, 96, 32)}));
  const std::vector<SequenceStep> requests = {block, rows(*other, 64, 96, 32)};
  ASSERT_TRUE(pieces.backend->forward(requests));
  ASSERT_TRUE(pieces.backend->forward({&block, 1}));
  const auto& steps = pieces.backend->clock().steps();
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[1].work, (StepTotals{2, 64, 64, 96}));
  EXPECT_EQ(steps[1].time.seconds(), steps[3].time.seconds());
  // Together they read the weights once.
  EXPECT_GT(steps[1].time.seconds(), steps[4].time.seconds());
  EXPECT_LT(steps[1].time.seconds(), 2 * steps[4].time.seconds());
}

/// A shadow row costs what a row does: 60 rows and four of these fill two tiles of rows, and one more begins a third.
TEST(TimedBackend, PricesShadowRowsAsRows) {
  Pieces pieces("mobile-sm8750");
  const auto cache = *pieces.backend->make_cache(160);
  SequenceStep plain = rows(*cache, 0, 60, 8), same = plain, more = plain;
  const SequenceStep longer = rows(*cache, 0, 64, 8);
  for (Position p = 0; p < 5; ++p) {
    const ShadowRow shadow{{p, 1}, {{0, p}, {p + 1, 60}}};
    if (p < 4) same.plan.shadows.push_back(shadow);
    more.plan.shadows.push_back(shadow);
  }
  for (const SequenceStep& step : {plain, same, longer, more}) ASSERT_TRUE(pieces.backend->forward({&step, 1}));
  const auto& steps = pieces.backend->clock().steps();
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[1].work, (StepTotals{1, 64, 8, 60}));
  EXPECT_EQ(steps[3].work, (StepTotals{1, 65, 8, 60}));
  EXPECT_EQ(steps[1].work.rows, steps[2].work.rows);
  EXPECT_GT(steps[3].time.seconds(), steps[1].time.seconds());
  EXPECT_GE(steps[1].time.seconds(), steps[0].time.seconds());
}

TEST(TimedBackend, ReportsAnUnsuitableDeviceAtOnce) {
  const ModelShape shape = *load_model_shape("llada-8b");
  const auto made = TimedBackend::create(std::make_unique<ValuelessBackend>(shape.desc), *load_device("dart-2048"),
                                         [&](StepShape step) { return shape.architecture->build(shape.desc, step); },
                                         {.processor = StepProcessor::kHost});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().what.find("no host processor"), std::string::npos);
}

/// The table has the stairs: flat within a tile of rows, higher after it.
TEST(TimedBackend, LatencyTable) {
  Pieces pieces("mobile-sm8750");
  const auto table = pieces.backend->latency_table(128);
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->estimate_ms(1, 1), table->estimate_ms(32, 32));
  EXPECT_GT(table->estimate_ms(33, 33), table->estimate_ms(32, 32));
  EXPECT_EQ(table->estimate_ms(33, 33), table->estimate_ms(64, 33));
  EXPECT_GE(table->ms_per_pair(), 0);
  EXPECT_GT(table->estimate_ms(32, 4096), table->estimate_ms(32, 32));
}

}  // namespace
}  // namespace dllm::npu
