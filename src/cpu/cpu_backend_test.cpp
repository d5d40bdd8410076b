#include "cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

#include "cpu/testing/tiny_model.h"

namespace dllm::cpu {
namespace {

using test::TinyModel;
using test::TinyShape;

std::unique_ptr<CpuBackend> make(const TinyModel& model, CpuOptions options = {}) {
  auto backend = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message());
  return std::move(*backend);
}

std::unique_ptr<KvCache> cache_of(CpuBackend& backend, Position capacity) {
  auto cache = backend.make_cache(capacity);
  EXPECT_TRUE(cache.has_value());
  return std::move(*cache);
}

/// Rows [begin, end) with tokens that depend on the position and a seed.
std::vector<PlanRow> rows_of(Position begin, Position end, int seed = 0) {
  std::vector<PlanRow> rows;
  for (Position p = begin; p < end; ++p) rows.push_back({p, (p * 37 + seed * 11 + p * p % 7) % 150});
  return rows;
}

SequenceStep step_of(KvCache& cache, std::vector<PlanRow> rows, std::vector<PositionRange> visible,
                     std::int32_t causal_block = 0) {
  SequenceStep step;
  step.cache = &cache;
  step.plan.rows = std::move(rows);
  step.plan.visible = std::move(visible);
  step.plan.causal_block = causal_block;
  for (std::size_t i = 0; i < step.plan.rows.size(); ++i) step.plan.scored.push_back(static_cast<std::int32_t>(i));
  step.request.logits = true;
  step.request.top_tokens = 3;
  return step;
}

Scores run(CpuBackend& backend, const SequenceStep& step) {
  auto scores = backend.forward(std::span(&step, 1));
  EXPECT_TRUE(scores.has_value());
  return std::move((*scores)[0]);
}

void expect_same_row(const Scores& a, std::size_t i, const Scores& b, std::size_t j) {
  EXPECT_EQ(a.rows[i].position, b.rows[j].position);
  EXPECT_EQ(a.rows[i].token, b.rows[j].token);
  for (double RowScore::* field : {&RowScore::confidence, &RowScore::log_odds, &RowScore::margin, &RowScore::entropy})
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a.rows[i].*field), std::bit_cast<std::uint64_t>(b.rows[j].*field));
  const std::size_t vocab = a.logits.size() / a.rows.size();
  for (std::size_t t = 0; t < vocab; ++t)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a.logits[i * vocab + t]),
              std::bit_cast<std::uint32_t>(b.logits[j * vocab + t]))
        << "row " << i << " token " << t;
}

void expect_same(const Scores& a, const Scores& b) {
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) expect_same_row(a, i, b, i);
}

/// Models whose executors take every path: float, int8 with and without minima, 16-bit weights.
std::vector<TensorType> types() {
  return {TensorType::kF32, TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kQ5_0};
}

// The second path of revision: run this one under the thread sanitizer.
TEST(CpuBackend, ABackendBesideItRunsAtTheSameTimeAndAlike) {
  for (TensorType type : types()) {
    TinyShape shape;
    shape.type = type;
    const TinyModel model(shape);
    CpuOptions options;
    options.threads = 2;
    const auto backend = make(model, options);
    auto beside = backend->beside(2);
    ASSERT_TRUE(beside);
    const auto own = cache_of(*backend, 24), side = cache_of(*backend, 24), twin = cache_of(*backend, 24);
    run(*backend, step_of(*own, rows_of(0, 20), {{0, 20}}));
    std::vector<Position> all;
    for (Position p = 0; p < 20; ++p) all.push_back(p);
    CpuBackend::copy_rows(*own, *side, all);
    CpuBackend::copy_rows(*own, *twin, all);
    EXPECT_TRUE(side->holds({0, 20}));
    EXPECT_EQ(side->token_of(7), own->token_of(7));
    const SequenceStep refresh = step_of(*side, rows_of(3, 6, 1), {{0, 20}});
    Scores there;
    std::thread other([&] {
      for (int i = 0; i < 3; ++i) there = run(**beside, refresh);
    });
    for (int i = 0; i < 3; ++i) run(*backend, step_of(*own, rows_of(10, 20, 2), {{0, 20}}));
    other.join();
    expect_same(there, run(*backend, step_of(*twin, rows_of(3, 6, 1), {{0, 20}})));
  }
  EXPECT_FALSE(make(TinyModel({}))->beside(0));
}

TEST(CpuBackend, MatchesDoublePrecision) {
  for (RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved})
    for (bool optional : {true, false}) {
      TinyShape shape;
      shape.layout = layout;
      const TinyModel model(shape, 5, optional);
      auto backend = make(model);
      EXPECT_EQ(backend->kv_type(), "f32");
      auto cache = cache_of(*backend, 40);
      const std::vector<PlanRow> rows = rows_of(0, 40);
      const Scores scores = run(*backend, step_of(*cache, rows, {{0, 40}}));
      const auto logits = model.forward(rows, [](std::size_t, std::size_t) { return true; });
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t t = 0; t < logits[r].size(); ++t)
          ASSERT_NEAR(scores.logits[r * logits[r].size() + t], logits[r][t], 1e-4);
    }
}

TEST(CpuBackend, MatchesDoublePrecisionUnderABlockCausalMask) {
  const TinyModel model({}, 6);
  auto backend = make(model);
  auto cache = cache_of(*backend, 40);
  const std::vector<PlanRow> rows = rows_of(0, 40);
  const Scores scores = run(*backend, step_of(*cache, rows, {{0, 40}}, 8));
  const auto logits = model.forward(rows, [](std::size_t i, std::size_t j) { return j / 8 <= i / 8; });
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t t = 0; t < logits[r].size(); ++t)
      ASSERT_NEAR(scores.logits[r * logits[r].size() + t], logits[r][t], 1e-4);
}

TEST(CpuBackend, ExactActivationsMatchDoublePrecisionOnQuantizedWeights) {
  for (TensorType type : types()) {
    TinyShape shape;
    shape.type = type;
    const TinyModel model(shape, 7);
    CpuOptions options;
    options.kv = CpuKvType::kF32;
    options.activations = CpuActivations::kF32;
    auto exact = make(model, options);
    options.activations = CpuActivations::kAuto;
    auto quantized = make(model, options);
    auto cache = cache_of(*exact, 20), other = cache_of(*quantized, 20);
    const std::vector<PlanRow> rows = rows_of(0, 20);
    const Scores a = run(*exact, step_of(*cache, rows, {{0, 20}}));
    const Scores b = run(*quantized, step_of(*other, rows, {{0, 20}}));
    const auto logits = model.forward(rows, [](std::size_t, std::size_t) { return true; });
    double error = 0, size = 0;
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::size_t t = 0; t < logits[r].size(); ++t) {
        ASSERT_NEAR(a.logits[r * logits[r].size() + t], logits[r][t], 2e-4);
        error += std::pow(static_cast<double>(b.logits[r * logits[r].size() + t]) - logits[r][t], 2);
        size += std::pow(logits[r][t], 2);
      }
    EXPECT_LT(std::sqrt(error / size), 0.025) << codec(type).name;  // int8 activations: about 0.5 % per layer
  }
}

TEST(CpuBackend, SmallerCacheTypesAreClose) {
  TinyShape shape;
  shape.head_dim = 32, shape.width = 128;
  const TinyModel model(shape, 8);
  auto full = make(model);
  auto b = cache_of(*full, 24);
  const Scores y = run(*full, step_of(*b, rows_of(0, 24), {{0, 24}}));
  struct Case {
    CpuKvType type;
    const char* name;
    double tolerance;
  };
  for (const Case& c : {Case{CpuKvType::kF16, "f16", 0.02}, Case{CpuKvType::kBF16, "bf16", 0.15},
                        Case{CpuKvType::kQ8_0, "q8_0", 0.15}, Case{CpuKvType::kQ4_0, "q4_0", 1.5}}) {
    CpuOptions options;
    options.kv = c.type;
    auto small = make(model, options);
    EXPECT_EQ(small->kv_type(), c.name);
    auto a = cache_of(*small, 24);
    const Scores x = run(*small, step_of(*a, rows_of(0, 24), {{0, 24}}));
    EXPECT_NE(x.logits, y.logits) << c.name;
    for (std::size_t i = 0; i < x.logits.size(); ++i) ASSERT_NEAR(x.logits[i], y.logits[i], c.tolerance) << c.name;
  }
}

TEST(CpuBackend, BlocksOfTheCacheMustDivideTheHead) {
  const TinyModel model({}, 8);  // head_dim 16
  CpuOptions options;
  options.kv = CpuKvType::kQ8_0;
  const auto backend = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  ASSERT_FALSE(backend.has_value());
  EXPECT_EQ(backend.error().code, ErrorCode::kUsage);
  EXPECT_NE(backend.error().what.find("16"), std::string::npos);
}

TEST(CpuBackend, EveryIsaAndThreadCountGivesTheSameBits) {
  for (TensorType type : types()) {
    TinyShape shape;
    shape.type = type;
    const TinyModel model(shape, 9);
    CpuOptions options;
    options.isa = "scalar";
    options.threads = 1;
    auto oracle = make(model, options);
    auto cache = cache_of(*oracle, 33);
    const Scores expected = run(*oracle, step_of(*cache, rows_of(0, 33), {{0, 33}}));
    for (const CpuIsa& isa : cpu_isas())
      for (int threads : {1, 2, 5}) {
        if (!isa.available) continue;
        options.isa = isa.name;
        options.threads = threads;
        auto backend = make(model, options);
        EXPECT_EQ(backend->isa(), isa.name);
        EXPECT_EQ(backend->threads(), threads);
        auto other = cache_of(*backend, 33);
        expect_same(run(*backend, step_of(*other, rows_of(0, 33), {{0, 33}})), expected);
      }
  }
}

TEST(CpuBackend, ResultsDoNotDependOnTheBatch) {
  for (TensorType type : types()) {
    TinyShape shape;
    shape.type = type;
    const TinyModel model(shape, 10);
    auto backend = make(model);
    std::vector<std::unique_ptr<KvCache>> caches;
    std::vector<SequenceStep> batch;
    std::vector<Scores> alone;
    for (int s = 0; s < 3; ++s) {
      const Position length = 13 + 9 * s;
      caches.push_back(cache_of(*backend, 50));
      auto step = step_of(*caches.back(), rows_of(0, length, s), {{0, length}}, s == 1 ? 4 : 0);
      step.request.temperature = s == 2 ? 0.9 : 0;
      alone.push_back(run(*backend, step));
      batch.push_back(step);
    }
    const auto together = backend->forward(batch);
    ASSERT_TRUE(together.has_value());
    for (std::size_t s = 0; s < 3; ++s) expect_same((*together)[s], alone[s]);
    std::reverse(batch.begin(), batch.end());
    const auto reversed = backend->forward(batch);
    for (std::size_t s = 0; s < 3; ++s) expect_same((*reversed)[2 - s], alone[s]);
  }
}

TEST(CpuBackend, ScatteredRowsOverCachedOnesGiveTheSameBits) {
  for (TensorType type : types()) {
    TinyShape shape;
    shape.type = type;
    const TinyModel model(shape, 11);
    auto backend = make(model);
    auto cache = cache_of(*backend, 30);
    const std::vector<PlanRow> rows = rows_of(0, 30);
    const Scores full = run(*backend, step_of(*cache, rows, {{0, 30}}));
    const std::vector<std::size_t> some = {3, 4, 11, 17, 29};
    std::vector<PlanRow> scattered;
    for (std::size_t i : some) scattered.push_back(rows[i]);
    const Scores again = run(*backend, step_of(*cache, scattered, {{0, 10}, {10, 30}}));
    for (std::size_t i = 0; i < some.size(); ++i) expect_same_row(again, i, full, some[i]);
    EXPECT_EQ(cache->epoch(), 2u);
    EXPECT_EQ(cache->epoch_of(3), 2u);
    EXPECT_EQ(cache->epoch_of(5), 1u);
  }
}

TEST(CpuBackend, BlockCausalCachedEqualsUncached) {
  for (TensorType type : types()) {
    TinyShape shape;
    shape.type = type;
    const TinyModel model(shape, 12);
    auto backend = make(model);
    const std::int32_t block = 8;
    auto whole = cache_of(*backend, 48);
    const Scores full = run(*backend, step_of(*whole, rows_of(0, 48), {{0, 48}}, block));
    auto cached = cache_of(*backend, 48);
    for (Position begin = 0; begin < 48; begin += block) {
      const Scores part = run(*backend, step_of(*cached, rows_of(begin, begin + block), {{0, begin + block}}, block));
      for (std::size_t i = 0; i < static_cast<std::size_t>(block); ++i)
        expect_same_row(part, i, full, static_cast<std::size_t>(begin) + i);
    }
  }
}

TEST(CpuBackend, OnlyScoredRowsAreReported) {
  const TinyModel model({}, 13);
  auto backend = make(model);
  auto cache = cache_of(*backend, 16);
  SequenceStep step = step_of(*cache, rows_of(0, 16), {{0, 16}});
  const Scores all = run(*backend, step);
  step.plan.scored = {2, 7};
  step.request.logits = true;
  const Scores some = run(*backend, step);
  ASSERT_EQ(some.rows.size(), 2u);
  expect_same_row(some, 0, all, 2);
  expect_same_row(some, 1, all, 7);
  step.plan.scored = {};
  const Scores none = run(*backend, step);
  EXPECT_TRUE(none.rows.empty());
  EXPECT_TRUE(none.logits.empty());
}

TEST(CpuBackend, GuidanceMixesLogitsOfTwoSequences) {
  const TinyModel model({}, 14);
  auto backend = make(model);
  auto c = cache_of(*backend, 16), u = cache_of(*backend, 16);
  std::vector<SequenceStep> batch = {step_of(*c, rows_of(0, 16, 1), {{0, 16}}),
                                     step_of(*u, rows_of(0, 16, 2), {{0, 16}})};
  const Scores conditional = run(*backend, batch[0]), unconditional = run(*backend, batch[1]);
  batch[0].guidance = Guidance{1, 2.f};
  const auto guided = backend->forward(batch);
  ASSERT_TRUE(guided.has_value());
  EXPECT_TRUE((*guided)[1].rows.empty());
  ASSERT_EQ((*guided)[0].logits.size(), conditional.logits.size());
  for (std::size_t i = 0; i < conditional.logits.size(); ++i) {
    const float z = unconditional.logits[i] + 3.f * (conditional.logits[i] - unconditional.logits[i]);
    ASSERT_EQ((*guided)[0].logits[i], z);
  }
}

TEST(CpuBackend, SmallerStepsReuseThePlanOfTheLargest) {
  const TinyModel model({}, 15);
  auto backend = make(model), fresh = make(model);
  auto cache = cache_of(*backend, 64), other = cache_of(*fresh, 64);
  run(*backend, step_of(*cache, rows_of(0, 64), {{0, 64}}));
  const std::int64_t bytes = backend->arena_bytes();
  const Scores small = run(*backend, step_of(*cache, rows_of(0, 9), {{0, 9}}));
  EXPECT_EQ(backend->arena_bytes(), bytes);
  expect_same(small, run(*fresh, step_of(*other, rows_of(0, 9), {{0, 9}})));
  EXPECT_LT(fresh->arena_bytes(), bytes);
}

TEST(CpuBackend, BadOptionsAndWeightsAreErrors) {
  const TinyModel model({}, 16);
  CpuOptions options;
  options.isa = "mmx";
  auto unknown = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_NE(unknown.error().hint.find("scalar"), std::string::npos);
  options = {};
  options.threads = -2;
  EXPECT_EQ(CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options).error().code, ErrorCode::kUsage);

  Weights weights = model.weights();
  weights[0].data = {};
  EXPECT_EQ(CpuBackend::create(ModelDesc{}, model.factory(), weights).error().code, ErrorCode::kInvalidFile);
  weights = model.weights();
  weights[0].data = weights[0].data.first(weights[0].data.size() - 4);
  EXPECT_EQ(CpuBackend::create(ModelDesc{}, model.factory(), weights).error().code, ErrorCode::kInvalidFile);
  weights = model.weights();
  weights[0].shape = {32, 300};
  EXPECT_EQ(CpuBackend::create(ModelDesc{}, model.factory(), weights).error().code, ErrorCode::kInvalidFile);
  weights.pop_back();
  EXPECT_EQ(CpuBackend::create(ModelDesc{}, model.factory(), weights).error().code, ErrorCode::kInvalidFile);
}

TEST(CpuBackend, ListsItsInstructionSets) {
  const std::vector<CpuIsa> isas = cpu_isas();
  EXPECT_EQ(std::count_if(isas.begin(), isas.end(), [](const CpuIsa& isa) { return isa.is_default; }), 1);
  const TinyModel model({}, 17);
  auto backend = make(model);
  for (const CpuIsa& isa : isas) EXPECT_EQ(isa.is_default, isa.name == backend->isa());
}

}  // namespace
}  // namespace dllm::cpu
