#include "npu_compiler/compiler/step_time.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "npu_compiler/analytic/operator_work.h"
#include "npu_compiler/compiler/block_cost.h"
#include "npu_compiler/runtime/step_memory.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

ModelShape short_shape(const char* name, std::int64_t layers) {
  ModelShape shape = *load_model_shape(name);
  shape.desc.layers = layers;
  return shape;
}

/// A device with the times of a model's steps on it.
struct TimedModel {
  Device device;
  ModelShape shape;
  CostModel model;
  StepTimes times;

  TimedModel(const char* name, const char* of, const std::vector<Override>& changes = {}, std::int64_t layers = 32)
      : device(*load_device(name, changes)),
        shape(short_shape(of, layers)),
        model(*CostModel::create(device, *achieved_bandwidth(device))),
        times(shape) {}

  StepCycles of(const StepQuestion& question) {
    const CostAssumptions load{.sequences = question.step.sequences,
                               .keys = question.step.keys,
                               .parts = static_cast<std::int64_t>(question.parts.size())};
    const auto cost = model.evaluate(shape.architecture->build(shape.desc, question.step.shape()), load);
    return *times.time(model, question, *cost);
  }
};

constexpr StepSize kRefine = {.sequences = 4, .rows = 32, .keys = 256, .scored = 32};

TEST(StepTimes, EveryPartReadsAllWeightsAndIsDispatched) {
  TimedModel t("dart-2048", "llada-8b", {{"host.dispatch_us", "3"}});
  const std::vector<RowPart> one = {4}, four = {1, 1, 1, 1};
  const StepCycles whole = t.of({.step = kRefine, .parts = one}), cut = t.of({.step = kRefine, .parts = four});
  EXPECT_EQ(whole.source, TimeSource::kPriced);
  EXPECT_EQ(source_name(whole.source), "priced schedule");
  StepSize single = kRefine;
  single.sequences = 1;
  const std::vector<RowPart> alone = {1};
  const StepCycles part = t.of({.step = single, .parts = alone});
  EXPECT_NEAR(cut.device, 4 * part.device, 1e-6 * cut.device);
  EXPECT_GT(cut.device, 3 * whole.device);  // limited by the weights
  EXPECT_NEAR(cut.dispatch, 4 * part.dispatch, 1e-6 * cut.dispatch);
  EXPECT_GT(part.dispatch, 500 * 3e3);  // more than 500 operators
  EXPECT_EQ(part.cycles(), part.device + part.dispatch);
}

/// Logits that go to memory are written there.
TEST(StepTimes, LogitsTakeTime) {
  TimedModel t("dart-2048", "llada-8b");
  const double stored = t.of({.step = kRefine}).device, reduced = t.of({.step = kRefine, .logits = false}).device;
  EXPECT_GT(stored, reduced);
  EXPECT_LT(stored, 1.02 * reduced);
}

/// One treatment of the window: what the planner cannot hide.
TEST(StepTimes, MappingsAreThePlanners) {
  const StepSize step{.sequences = 1, .rows = 32, .keys = 64, .scored = 32};
  double before = 0;
  for (const char* window : {"1500000000", "700000000", "450000000"}) {
    TimedModel t("mobile-v79", "llada-8b", {{"window.bytes", window}, {"window.map_us", "20000"}}, 4);
    const StepQuestion question{.step = step};
    const StepCycles timed = t.of(question);
    const MemoryPlan plan = *plan_memory(*t.times.program(t.model, question, timed), *memory_limits(t.device));
    const double hertz = t.device.clock.ghz * 1e9;
    EXPECT_NEAR(plan.compute_seconds * hertz, timed.device + timed.dispatch, 1e-9 * timed.cycles()) << window;
    EXPECT_NEAR(plan.seconds * hertz, timed.cycles(), 1e-6 * timed.cycles()) << window;
    EXPECT_GE(timed.mapping, before) << window;
    before = timed.mapping;
  }
  EXPECT_GT(before, 0);
  EXPECT_EQ(TimedModel("mobile-v81", "llada-8b").of({.step = step}).mapping, 0);
}

/// What is kept of a step is not taken for another step, batch or window.
TEST(StepTimes, WaitsAreOfTheirStep) {
  const std::vector<Override> tight = {{"window.bytes", "450000000"}, {"window.map_us", "20000"}};
  const StepSize steps[] = {{.sequences = 1, .rows = 32, .keys = 64, .scored = 32},
                            {.sequences = 2, .rows = 32, .keys = 64, .scored = 32},
                            {.sequences = 1, .rows = 64, .keys = 64, .scored = 64}};
  TimedModel t("mobile-v79", "llada-8b", tight, 4);
  for (const StepSize& step : steps)
    for (int again = 0; again < 2; ++again) {
      TimedModel fresh("mobile-v79", "llada-8b", tight, 4);
      const StepCycles of_fresh = fresh.of({.step = step});
      EXPECT_GT(of_fresh.mapping, 0);
      EXPECT_EQ(t.of({.step = step}).mapping, of_fresh.mapping) << step.sequences << " x " << step.rows;
    }
  // Another device asks the same times.
  const Device wide = *load_device("mobile-v79", {{"window.bytes", "1500000000"}, {"window.map_us", "20000"}});
  const CostModel model = *CostModel::create(wide, *achieved_bandwidth(wide));
  const Graph graph = t.shape.architecture->build(t.shape.desc, steps[0].shape());
  const StepCost cost = *model.evaluate(graph, {.sequences = 1, .keys = 64});
  EXPECT_LT(t.times.time(model, {.step = steps[0]}, cost)->mapping, t.of({.step = steps[0]}).mapping);
}

/// Both phases of a block, in the parts that are compiled, sum to it.
TEST(StepTimes, BlocksAreJudgedByBothPhases) {
  TimedModel t("dart-2048", "llada-8b");
  const Workload w;
  const BlockParts parts = *check_feasible(t.device, t.shape, w);
  EXPECT_EQ(parts.warm, std::vector<RowPart>(8, 2));
  EXPECT_EQ(parts.refine, std::vector<RowPart>{16});
  const auto block = evaluate_block(t.times, t.model, t.shape.architecture->build(t.shape.desc, warm_shape(w)),
                                    t.shape.architecture->build(t.shape.desc, refine_shape(w)), w, parts);
  ASSERT_TRUE(block) << block.error().message();
  // docs/guide/npu.md has 118.3 and 15.77 ms, simulated.
  EXPECT_NEAR(block->warm.seconds, 0.1183, 0.01 * 0.1183);
  EXPECT_NEAR(block->refine.seconds, 0.01577, 0.01 * 0.01577);
  EXPECT_NEAR(block->seconds, block->warm.seconds + 31 * block->refine.seconds, 1e-9);
  EXPECT_NEAR(block->tokens_per_second, 16 * 32 / block->seconds, 1e-6);
  EXPECT_NEAR(block->joules, block->warm.energy.total() + 31 * block->refine.energy.total(), 1e-6);
  EXPECT_GT(block->serial_seconds, 2 * block->seconds);
  // Weights count once per part.
  EXPECT_GT(block->warm.cost.total.read_bytes, 8 * block->warm.cost.total.weight_bytes);
}

TEST(StepTimes, WithoutAProgramThereIsNoBlock) {
  const std::vector<Override> less = {{"sram.vector_rows", "8192"}};
  const Device phone = *load_device("mobile-v79", less), whole = *load_device("mobile-v79");
  const ModelShape shape = *load_model_shape("llada-8b");
  Workload w{.batch = 1, .context = 256};
  const auto refused = check_feasible(phone, shape, w);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message(), check_feasible(phone, shape, warm_step(w), {}).error().message());
  // With all of its memory the rows of the warm step take turns.
  const auto parts = check_feasible(whole, shape, w);
  ASSERT_TRUE(parts) << parts.error().message();
  EXPECT_GT(parts->warm.size(), 1u);
  EXPECT_EQ(parts->refine, std::vector<RowPart>{1});
}

/// Named by every operator that is missing, or by what the device has too little of.
TEST(StepTimes, WithoutAProgramTheReasonIsNamed) {
  const Workload w{.batch = 1, .block = 32, .context = 64};
  for (const char* name : {"dart-2048", "mobile-v79"}) {
    const auto gemma = check_feasible(*load_device(name), *load_model_shape("diffusion-gemma-tiny"), w);
    EXPECT_TRUE(gemma) << name << ": " << gemma.error().message();
  }
  const auto long_heads = check_feasible(*load_device("dart-2048"), *load_model_shape("diffusion-gemma-26b"), w);
  ASSERT_FALSE(long_heads);
  EXPECT_NE(long_heads.error().message().find("heads of 512 lanes"), std::string::npos) << long_heads.error().message();
  EXPECT_TRUE(check_feasible(*load_device("dart-512"), *load_model_shape("mdlm-owt"), w));
  // More experts than lanes fill several rows of them, wherever the lists have room.
  for (const auto& [model, experts] : {std::pair{"rnd1-30b", "128 experts"}, {"llada2-mini", "256 experts"}}) {
    ModelShape shape = *load_model_shape(model);
    shape.desc.layers = shape.desc.experts.leading_dense + 1;
    for (const char* any : {"dart-512", "mobile-v79", "mobile-v81-mx", "plena-64-wide"}) {
      const auto fits = check_feasible(*load_device(any), shape, w);
      EXPECT_TRUE(fits) << model << " on " << any << ": " << fits.error().message();
    }
    const auto refused = check_feasible(*load_device("mobile-v79", {{"sram.int_words", "512"}}), shape, w);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message().find(experts), std::string::npos) << refused.error().message();
    EXPECT_NE(refused.error().message().find("INT_MEM"), std::string::npos) << refused.error().message();
  }
}

}  // namespace
}  // namespace dllm::npu
