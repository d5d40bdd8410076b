// The analytical schedule against the cycle-accurate simulation of compiled steps.

#include "npu_compiler/analytic/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/make_step.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

struct Case {
  const char* device;
  const char* model;
  StepSize size;
  std::vector<Override> overrides = {};
};

/// A step of a shape, compiled and simulated, and its schedule; cycles by name of region.
struct Compared {
  double simulated = 0, scheduled = 0;
  std::map<std::string, double> regions, phases;
};
void compare(const Device& device, const ModelShape& shape, const StepSize& size, const ChoiceAssumption& choices,
             Compared& found) {
  const MachineConfig machine = *machine_config(device);
  const Graph any = shape.architecture->build(shape.desc, {1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
  const ModelLayout layout = *make_layout(any, present, machine, size.keys);
  const StepSpec spec = *make_step(any, layout, size);
  const Graph graph = shape.architecture->build(shape.desc, {spec.rows(), spec.scored()});
  CompileOptions options;
  options.choices = choices;
  const auto step = compile_step(graph, layout, spec, options);
  ASSERT_TRUE(step) << step.error().message();
  const auto simulated = simulate(device, machine, step->program, {});
  ASSERT_TRUE(simulated) << simulated.error().message();
  const auto schedule = schedule_step(device, graph,
                                      {.sequences = size.sequences,
                                       .keys = size.keys,
                                       .logits = true,
                                       .gbps = *achieved_bandwidth(device),
                                       .choices = choices});
  ASSERT_TRUE(schedule) << schedule.error().message();
  found.simulated = static_cast<double>(simulated->total);
  found.scheduled = schedule->total;
  for (const RegionTiming& region : simulated->regions)
    found.regions[region.name] += static_cast<double>(region.cycles);
  for (const ScheduledPhase& phase : schedule->phases) found.phases[phase.name] += phase.cycles;
}
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.device << " " << c.model << " " << c.size.sequences << "x" << c.size.rows << " of " << c.size.keys;
  for (const Override& o : c.overrides) *out << " " << o.key << "=" << o.value;
}

class Schedules : public testing::TestWithParam<Case> {};

/// Two layers and a short head of the shape: the repeating parts, with the model's widths.
TEST_P(Schedules, PredictTheSimulator) {
  const Case& c = GetParam();
  ModelShape shape = *load_model_shape(c.model);
  shape.desc.layers = 2;
  shape.desc.vocab = 8192;
  Compared step;
  ASSERT_NO_FATAL_FAILURE(compare(*load_device(c.device, c.overrides), shape, c.size, {}, step));
  EXPECT_NEAR(step.scheduled, step.simulated, 0.05 * step.simulated);
  double compared = 0;
  for (const auto& [name, cycles] : step.phases) {
    // Attention's phase includes what comes before it: the smoothing of K and V, and their stores.
    const double region = step.regions[name] + (name == "blk.1.attn_mix" ? step.regions["blk.1.store_kv"] : 0);
    // The first layer waits for the first weights, wherever that is in its schedule.
    if (!name.starts_with("blk.1.") || region < 0.01 * step.simulated) continue;
    EXPECT_NEAR(cycles, region, 0.15 * region) << name;
    compared += region;
  }
  EXPECT_GT(compared, 0.3 * step.simulated);
}

const std::vector<Override> kSmoothed = {{"numerics.smooth_keys", "mean"}, {"numerics.smooth_values", "minmax"}};

INSTANTIATE_TEST_SUITE_P(
    Steps, Schedules,
    testing::Values(Case{"dart-2048", "llada-8b", {.sequences = 16, .rows = 32, .keys = 256}},
                    Case{"dart-2048", "llada-8b", {.sequences = 1, .rows = 32, .keys = 256}},
                    Case{"dart-2048", "llada-8b", {.sequences = 2, .rows = 64, .keys = 1024}},
                    Case{"dart-2048", "dream-7b", {.sequences = 4, .rows = 32, .keys = 512}},
                    Case{"dart-1024", "llada-8b", {.sequences = 4, .rows = 32, .keys = 300}},
                    Case{"dart-512", "dream-7b", {.sequences = 1, .rows = 32, .keys = 256}},
                    Case{"dart-2048", "llada-8b", {.sequences = 16, .rows = 32, .keys = 256}, kSmoothed},
                    Case{"dart-2048", "llada-8b", {.sequences = 1, .rows = 256, .keys = 256}, kSmoothed}));

/// A step of a model with experts: its widths, one layer of experts, a short head, on a variant of a device.
struct ExpertCase {
  const char* device;
  const char* model;
  StepSize size;
  std::vector<Override> overrides = {};
  ChoiceAssumption choices = {};
};
void PrintTo(const ExpertCase& c, std::ostream* out) {
  *out << c.device << " " << c.model << " " << c.size.sequences << "x" << c.size.rows << " of " << c.size.keys;
  for (const Override& o : c.overrides) *out << " " << o.key << "=" << o.value;
  if (c.choices.balanced) *out << " balanced";
  if (c.choices.lanes > 0) *out << " " << c.choices.lanes << " experts";
}

class ExpertSchedules : public testing::TestWithParam<ExpertCase> {};

TEST_P(ExpertSchedules, PredictTheSimulator) {
  const ExpertCase& c = GetParam();
  const auto device = load_device(c.device, c.overrides);
  ASSERT_TRUE(device) << device.error().message();
  ModelShape shape = *load_model_shape(c.model);
  shape.desc.layers = shape.desc.experts.leading_dense + 1;
  shape.desc.vocab = 2048;
  Compared step;
  ASSERT_NO_FATAL_FAILURE(compare(*device, shape, c.size, c.choices, step));
  EXPECT_NEAR(step.scheduled, step.simulated, 0.05 * step.simulated);
  const std::string layer = "blk." + std::to_string(shape.desc.layers - 1) + ".";
  for (const auto& [name, bound] : {std::pair{"ffn_exps", 0.04}, {"ffn_route", 0.1}, {"attn_k_norm", 0.05}}) {
    const double region = step.regions[layer + name];
    ASSERT_GT(region, 0) << name;
    EXPECT_NEAR(step.phases[layer + name], region, bound * region) << name;
  }
  EXPECT_GT(step.regions[layer + "ffn_exps"], 0.1 * step.simulated);
}

constexpr StepSize kFew = {.sequences = 4, .rows = 32, .keys = 64}, kMany = {.sequences = 8, .rows = 32, .keys = 128};

INSTANTIATE_TEST_SUITE_P(
    Steps, ExpertSchedules,
    testing::Values(ExpertCase{"dart-2048", "llada-moe", {.sequences = 16, .rows = 32, .keys = 256}},
                    ExpertCase{"dart-2048", "llada2-mini", {.sequences = 16, .rows = 32, .keys = 256}},
                    ExpertCase{"dart-2048", "llada-moe", kFew},
                    ExpertCase{"dart-2048", "llada-moe", kMany, {}, {.balanced = true}},
                    ExpertCase{"dart-2048", "llada2-mini", kFew, {}, {.lanes = 16}},
                    ExpertCase{"dart-1024", "llada-moe", kFew},
                    ExpertCase{"dart-1024", "llada2-mini", kMany, {}, {.lanes = 64}},
                    ExpertCase{"dart-512", "llada-moe", kFew, {}, {.lanes = 16}},
                    ExpertCase{"dart-512", "llada2-mini", kFew, {}, {.lanes = 32}},
                    ExpertCase{"dart-2048", "llada-moe", kFew, {{"array.blen", "32"}}},
                    ExpertCase{"dart-2048", "llada-moe", kFew, {{"array.blen", "64"}, {"array.vlen", "4096"}}},
                    ExpertCase{"dart-2048", "llada-moe", kMany, {{"array.mlen", "1024"}, {"array.vlen", "1024"}}},
                    ExpertCase{"dart-2048", "llada-moe", kFew, {{"sram.matrix_ports", "1"}}},
                    ExpertCase{"dart-2048", "llada2-mini", kFew, {{"sram.matrix_ports", "1"}}, {.lanes = 64}},
                    ExpertCase{"dart-2048", "llada-moe", kFew, {{"sram.matrix_tiles", "4"}}},
                    ExpertCase{"dart-2048", "llada-moe", kMany, {{"memory.stacks", "4"}}},
                    ExpertCase{"dart-2048", "llada-moe", kMany, {{"array.macs_per_pe", "2"}}}));

/// The published latencies enter, not only their shipped values.
TEST(Schedule, FollowsLatenciesOfRouting) {
  ModelShape shape = *load_model_shape("llada2-mini");
  shape.desc.layers = 2, shape.desc.vocab = 2048, shape.desc.experts.count = 64;
  Compared usual, slow;
  ASSERT_NO_FATAL_FAILURE(compare(*load_device("dart-2048"), shape, kFew, {}, usual));
  const Device device = *load_device("dart-2048", {{"latency.vector_max", "8"}, {"latency.vector_add", "4"}});
  ASSERT_NO_FATAL_FAILURE(compare(device, shape, kFew, {}, slow));
  for (const char* name : {"blk.1.ffn_route", "blk.1.attn_k_norm"}) {
    EXPECT_GT(slow.regions[name], 1.05 * usual.regions[name]) << name;
    EXPECT_NEAR(slow.phases[name], slow.regions[name], 0.12 * slow.regions[name]) << name;
  }
}

/// What `analyze` and `sweep` use for a whole model is what `step --analytic` computes from all of its layers.
TEST(Schedule, ShortModelsGiveTheWholeOne) {
  const Device device = *load_device("dart-2048");
  for (const char* model : {"llada-8b", "llada-moe", "llada2-mini"}) {
    const ModelShape shape = *load_model_shape(model);
    const Workload work{.batch = 4, .block = 32, .context = 256, .choices = {.lanes = 48}};
    const ScheduleAssumptions load{.sequences = work.batch,
                                   .keys = work.context,
                                   .logits = !work.fused_head,
                                   .logit_bytes = device.numerics.logit_bytes,
                                   .gbps = 700,
                                   .choices = work.choices};
    for (const StepSize& step : {warm_step(work), refine_step(work)}) {
      const auto whole = schedule_step(device, shape.architecture->build(shape.desc, step.shape()), load);
      ASSERT_TRUE(whole) << model;
      const auto extrapolated = ModelSchedule(shape).cycles(device, step, load);
      ASSERT_TRUE(extrapolated) << model;
      EXPECT_NEAR(*extrapolated, whole->total, 1e-3 * whole->total) << model << " " << step.rows;
    }
  }
}

TEST(Schedule, RefusesLoadsThatDoNotFitTheShape) {
  const Device device = *load_device("dart-2048");
  const ModelShape shape = *load_model_shape("llada-8b");
  const Graph graph = shape.architecture->build(shape.desc, {8, 8});
  EXPECT_FALSE(schedule_step(device, graph, {.sequences = 16, .keys = 8, .logits = true, .gbps = 700}));
  EXPECT_FALSE(schedule_step(device, graph, {.sequences = 1, .keys = 8, .logits = true, .gbps = 0}));
  EXPECT_TRUE(schedule_step(device, graph, {.sequences = 1, .keys = 8, .logits = true, .gbps = 700}));
}

}  // namespace
}  // namespace dllm::npu
