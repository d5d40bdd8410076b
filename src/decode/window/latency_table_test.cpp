#include "backend/latency_table.h"

#include <gtest/gtest.h>

#include "backend/measure_latency.h"

namespace dllm {
namespace {

TEST(LatencyTable, IsLinearBetweenPointsAndGoesOnBehindThem) {
  const LatencyTable table({{1, 10}, {8, 24}, {32, 96}}, 0);
  EXPECT_EQ(table.estimate_ms(0, 0), 0);
  EXPECT_DOUBLE_EQ(table.estimate_ms(1, 1), 10);
  EXPECT_DOUBLE_EQ(table.estimate_ms(4, 4), 16);
  EXPECT_DOUBLE_EQ(table.estimate_ms(8, 8), 24);
  EXPECT_DOUBLE_EQ(table.estimate_ms(20, 20), 60);
  EXPECT_DOUBLE_EQ(table.estimate_ms(64, 64), 192);
}

TEST(LatencyTable, NeverFallsWithMoreRows) {
  const LatencyTable table({{2, 10}, {4, 8}, {8, 9}, {16, 20}}, 0.01);
  double last = 0;
  for (std::int64_t rows = 1; rows <= 64; ++rows) {
    const double ms = table.estimate_ms(rows, 128);
    EXPECT_GE(ms, last) << rows;
    last = ms;
  }
  EXPECT_DOUBLE_EQ(table.points()[2].ms, 10);
}

TEST(LatencyTable, ContextCostsPerRowAndPosition) {
  const LatencyTable table({{1, 10}, {8, 24}}, 0.5);
  EXPECT_DOUBLE_EQ(table.estimate_ms(8, 108), 24 + 0.5 * 8 * 100);
  EXPECT_DOUBLE_EQ(table.estimate_ms(8, 3), 24) << "the rows see themselves";
  EXPECT_DOUBLE_EQ(LatencyTable({{4, 12}}, 0).estimate_ms(8, 8), 24) << "a single point";
  EXPECT_DOUBLE_EQ(LatencyTable({{4, 12}}, 0).estimate_ms(2, 2), 12);
}

/// A backend with a simulated clock: a step takes fixed + rows * per_row + pairs * per_pair seconds.
class ClockedBackend : public Backend {
 public:
  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    return std::unique_ptr<KvCache>(std::make_unique<Cache>(capacity));
  }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    const StepPlan& plan = batch[0].plan;
    const auto rows = static_cast<double>(plan.rows.size());
    const Position seen = plan.visible[0].end;
    static_cast<Cache&>(*batch[0].cache).record(plan.rows);
    EXPECT_TRUE(batch[0].cache->holds(plan.visible[0])) << "a row attends to positions that were never computed";
    now += fixed + rows * per_row + rows * (seen - rows) * per_pair;
    ++forwards;
    return std::vector<Scores>(1);
  }

  double now = 0, fixed = 0.1, per_row = 0.01, per_pair = 1e-5;
  int forwards = 0;
  ModelDesc desc_;

 private:
  struct Cache : KvCache {
    explicit Cache(Position capacity) : KvCache(capacity) {}
    using KvCache::record;
  };
};

TEST(MeasureLatency, FindsTheBackendsLaw) {
  ClockedBackend backend;
  backend.desc_.vocab = 50;
  backend.desc_.context_length = 4096;
  LatencyOptions options;
  options.budget_seconds = 1000;
  options.clock = [&] { return backend.now; };
  const auto table = measure_latency(backend, options);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->points().size(), 8u);
  EXPECT_EQ(table->points().back().rows, 128);
  for (const std::int64_t rows : {1, 3, 32, 100, 200})
    EXPECT_NEAR(table->estimate_ms(rows, 700),
                1e3 * (0.1 + 0.01 * static_cast<double>(rows) + 1e-5 * static_cast<double>(rows * (700 - rows))), 1e-6);
}

TEST(MeasureLatency, KeepsToItsBudget) {
  ClockedBackend backend;
  backend.desc_.vocab = 50;
  backend.per_row = 1;
  LatencyOptions options;
  options.budget_seconds = 10;
  options.clock = [&] { return backend.now; };
  const auto table = measure_latency(backend, options);
  ASSERT_TRUE(table);
  EXPECT_LE(backend.now, 10.0);
  EXPECT_LT(table->points().size(), 5u);
  options.budget_seconds = 0;
  backend.forwards = 0;
  ASSERT_TRUE(measure_latency(backend, options));
  EXPECT_EQ(backend.forwards, 2) << "one row, after its warm-up";
}

TEST(MeasureLatency, StaysInsideAShortContext) {
  ClockedBackend backend;
  backend.desc_.vocab = 50;
  backend.desc_.context_length = 24;
  LatencyOptions options;
  options.clock = [&] { return backend.now; };
  const auto table = measure_latency(backend, options);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->points().back().rows, 16);
  std::stop_source stop;
  stop.request_stop();
  options.stop = stop.get_token();
  const auto cancelled = measure_latency(backend, options);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace dllm
