// The analytical schedule against the cycle-accurate simulation of compiled steps.

#include "npu/analytic/schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "npu/analytic/workload.h"
#include "npu/compiler/workload_step.h"
#include "npu/machine/device_machine.h"
#include "npu/timing/simulator.h"

namespace dllm::npu {
namespace {

struct Case {
  const char* device;
  const char* model;
  StepWorkload work;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.device << " " << c.model << " " << c.work.batch << "x" << c.work.rows << " of " << c.work.context;
}

class Schedules : public testing::TestWithParam<Case> {};

/// Two layers and a short head of the shape: the repeating parts, with the model's widths.
TEST_P(Schedules, PredictTheSimulator) {
  const Case& c = GetParam();
  const Device device = *load_device(c.device);
  const MachineConfig machine = *machine_config(device);
  ModelShape shape = *load_model_shape(c.model);
  shape.desc.layers = 2;
  shape.desc.vocab = 8192;
  const Graph any = shape.architecture->build(shape.desc, {1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
  const ModelLayout layout = *make_layout(any, present, machine, c.work.context);
  const StepSpec spec = *make_step(any, layout, c.work);
  const Graph graph = shape.architecture->build(shape.desc, {spec.rows(), spec.scored()});
  const auto step = compile_step(graph, layout, spec);
  ASSERT_TRUE(step) << step.error().message();
  const auto simulated = simulate(device, machine, step->program, {});
  ASSERT_TRUE(simulated) << simulated.error().message();
  const auto schedule = schedule_step(
      device, graph,
      {.sequences = c.work.batch, .keys = c.work.context, .logits = true, .gbps = *achieved_bandwidth(device)});
  ASSERT_TRUE(schedule) << schedule.error().message();
  const auto total = static_cast<double>(simulated->total);
  EXPECT_NEAR(schedule->total, total, 0.05 * total);
  std::map<std::string, double> cycles;
  for (const RegionTiming& region : simulated->regions) cycles[region.name] += static_cast<double>(region.cycles);
  double compared = 0;
  for (const ScheduledPhase& phase : schedule->phases) {
    // The first layer waits for the first weights, wherever that is in its schedule.
    if (!phase.name.starts_with("blk.1.") || cycles[phase.name] < 0.01 * total) continue;
    EXPECT_NEAR(phase.cycles, cycles[phase.name], 0.15 * cycles[phase.name]) << phase.name;
    compared += cycles[phase.name];
  }
  EXPECT_GT(compared, 0.3 * total);
}

INSTANTIATE_TEST_SUITE_P(Steps, Schedules,
                         testing::Values(Case{"dart-2048", "llada-8b", {.batch = 16, .rows = 32, .context = 256}},
                                         Case{"dart-2048", "llada-8b", {.batch = 1, .rows = 32, .context = 256}},
                                         Case{"dart-2048", "llada-8b", {.batch = 2, .rows = 64, .context = 1024}},
                                         Case{"dart-2048", "dream-7b", {.batch = 4, .rows = 32, .context = 512}},
                                         Case{"dart-1024", "llada-8b", {.batch = 4, .rows = 32, .context = 300}},
                                         Case{"dart-512", "dream-7b", {.batch = 1, .rows = 32, .context = 256}}));

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
