#include "npu_compiler/answers/step_timer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/architecture.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/answers/answer_clock.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

StepTimer::GraphFactory graphs(const std::string& name) {
  return [shape = *load_model_shape(name)](StepShape step) { return shape.architecture->build(shape.desc, step); };
}

constexpr StepTotals kMost{.sequences = 1, .rows = 256, .scored = 0, .keys = 512};

StepTimer timer_on(const Device& device, TimerOptions options = {}, const StepTotals& most = kMost) {
  auto timer = StepTimer::create(device, graphs("llada-8b"), most, options);
  EXPECT_TRUE(timer) << timer.error().message();
  return *std::move(timer);
}

StepTime step(StepTimer& timer, std::int64_t rows, std::int64_t scored, std::int64_t keys = 512) {
  const auto time = timer.time({.sequences = 1, .rows = rows, .scored = scored, .keys = keys});
  EXPECT_TRUE(time) << time.error().message();
  return *time;
}

/// Every part is a time, and the energies follow from powers and the total time.
TEST(StepTimer, PartsSum) {
  for (const char* name : {"mobile-sm8650", "mobile-sm8750", "mobile-sm8850", "dart-2048"}) {
    const Device device = *load_device(name);
    StepTimer timer = timer_on(device);
    const StepTime t = step(timer, 32, 32);
    for (const double part : {t.array, t.vector, t.memory, t.dispatch, t.staging, t.host, t.energy.compute,
                              t.energy.dram, t.energy.standby, t.energy.host_active, t.energy.host_idle})
      EXPECT_GE(part, 0) << name;
    EXPECT_DOUBLE_EQ(t.seconds(), t.array + t.vector + t.memory + t.dispatch + t.staging + t.host);
    const double resting = t.seconds() - t.host - t.dispatch;
    EXPECT_NEAR(t.energy.host_idle, device.host.idle_w * resting, 1e-12) << name;
    StepTime twice = t;
    twice += t;
    const StepTime doubled = t.scaled(2);
    EXPECT_DOUBLE_EQ(doubled.seconds(), twice.seconds()) << name;
    EXPECT_DOUBLE_EQ(doubled.energy.joules(), twice.energy.joules()) << name;
    EXPECT_DOUBLE_EQ(twice.seconds(), 2 * t.seconds());
    EXPECT_DOUBLE_EQ(twice.energy.joules(), 2 * t.energy.joules());
  }
}

/// Steps that compile take what the cycle-accurate model says, others what the model of costs does; dispatch and the
/// host's part are the same.
TEST(StepTimer, SimulatesWhatCompiles) {
  ModelShape shape = *load_model_shape("llada-8b");
  shape.desc.layers = 1;
  shape.desc.vocab = 4096;
  const auto graph = [&](StepShape step) { return shape.architecture->build(shape.desc, step); };
  const Device device = *load_device("mobile-sm8750");
  StepTimer model = *StepTimer::create(device, graph, kMost, {});
  StepTimer simulator = *StepTimer::create(device, graph, kMost, {.simulate = true});
  const StepTotals small{.sequences = 1, .rows = 32, .scored = 8, .keys = 256};
  const StepProfile a = **model.profile(small), b = **simulator.profile(small);
  EXPECT_EQ(b.source, TimeSource::kSimulated);
  EXPECT_EQ(simulator.unsimulated(), "");
  EXPECT_NE(a.time.seconds(), b.time.seconds());
  EXPECT_NEAR(b.time.seconds() / a.time.seconds(), 1, 0.1);
  EXPECT_EQ(a.time.dispatch, b.time.dispatch);
  EXPECT_EQ(a.time.host, b.time.host);
  double sum = 0;
  for (const Stretch& one : b.stretches) sum += one.seconds;
  EXPECT_NEAR(sum, b.time.seconds(), 1e-12);

  // Not even one row of a step fits.
  const Device tight = *load_device("mobile-sm8750", {{"sram.vector_rows", "1024"}});
  StepTimer tight_model = *StepTimer::create(tight, graph, kMost, {});
  StepTimer tight_simulator = *StepTimer::create(tight, graph, kMost, {.simulate = true});
  const StepTotals large{.sequences = 1, .rows = 256, .scored = 8, .keys = 256};
  EXPECT_EQ((*tight_simulator.profile(large))->source, TimeSource::kBound);
  EXPECT_NE(tight_simulator.unsimulated(), "");
  EXPECT_EQ(tight_simulator.time(large)->seconds(), tight_model.time(large)->seconds());
}

/// The device's own model of the step, operator by operator, plus what the timer adds to it.
TEST(StepTimer, AgreesWithTheCostModel) {
  const Device device = *load_device("mobile-v79", {{"window.bytes", "0"}, {"window.staging_bytes", "0"}});
  StepTimer timer = timer_on(device);
  const CostModel model = *CostModel::create(device, *achieved_bandwidth(device));
  const Graph graph = graphs("llada-8b")({.rows = 32, .scored = 32});
  const StepCost cost = *model.evaluate(graph, {.sequences = 1, .keys = 512});
  EXPECT_NEAR(step(timer, 32, 32).seconds(), cost.total.cycles / (device.clock.ghz * 1e9), 1e-9);
  EXPECT_EQ(step(timer, 32, 32).staging, 0);
}

TEST(StepTimer, StairsOfTheArray) {
  StepTimer timer = timer_on(*load_device("mobile-sm8750"));
  EXPECT_EQ(step(timer, 1, 1).seconds(), step(timer, 32, 32).seconds());
  EXPECT_EQ(timer.buckets(), 1);
  EXPECT_EQ(step(timer, 33, 33).seconds(), step(timer, 64, 64).seconds());
  EXPECT_EQ(timer.buckets(), 2);
  double last = 0;
  for (std::int64_t rows = 32; rows <= 256; rows += 32) {
    const StepTime now = step(timer, rows, rows);
    EXPECT_GT(now.array + now.vector + now.memory + now.host, last) << rows;
    last = now.array + now.vector + now.memory + now.host;
  }
  // The host's own steps have no stairs.
  StepTimer host = timer_on(*load_device("mobile-sm8750"), {.processor = StepProcessor::kHost});
  EXPECT_LT(step(host, 31, 31).seconds(), step(host, 32, 32).seconds());
}

TEST(StepTimer, SkippedLogits) {
  const Device device = *load_device("mobile-sm8750");
  StepTimer skips = timer_on(device), all = timer_on(device, {.skip_logits = false});
  EXPECT_LT(step(skips, 64, 4).seconds(), step(skips, 64, 64).seconds());
  EXPECT_EQ(step(all, 64, 4).seconds(), step(skips, 64, 64).seconds());
  // Without scored rows, the head is not read at all: 126464 x 4096 weights of 4.5 bits, unpacked at 26 GB/s.
  const StepTime none = step(skips, 32, 0), some = step(skips, 32, 32);
  EXPECT_GT(some.vector - none.vector, 126464 * 4096 * 0.5625 / 26e9 * 0.99);
  EXPECT_LT(none.host, some.host);
}

/// A smaller window waits longer, an empty one still runs, paging waits longest.
TEST(StepTimer, WindowsAndWaiting) {
  double last = 0;
  for (const char* bytes : {"6000000000", "3355443200", "800000000"}) {
    const Device device = *load_device("mobile-sm8750", {{"window.bytes", bytes}});
    StepTimer planned = timer_on(device);
    const StepTime time = step(planned, 32, 32);
    EXPECT_GE(time.staging, last - 1e-12) << bytes;
    last = time.staging;
    StepTimer paged = timer_on(device, {.planner = false});
    EXPECT_GE(step(paged, 32, 32).staging, time.staging) << bytes;
  }
  EXPECT_GT(last, 0);
  const Device wide = *load_device("mobile-sm8850");
  StepTimer planned = timer_on(wide), paged = timer_on(wide, {.planner = false});
  EXPECT_EQ(step(planned, 32, 32).staging, 0);
  EXPECT_EQ(step(paged, 32, 32).seconds(), step(planned, 32, 32).seconds());
}

TEST(StepTimer, LargeStepsFailWithoutThePlanner) {
  const Device device = *load_device("mobile-sm8750");
  const StepTotals most{.sequences = 1, .rows = 512, .scored = 0, .keys = 512};
  StepTimer paged = timer_on(device, {.planner = false}, most), planned = timer_on(device, {}, most);
  EXPECT_TRUE(paged.time({.sequences = 1, .rows = 128, .scored = 32, .keys = 512}));
  const auto failed = paged.time({.sequences = 1, .rows = 512, .scored = 32, .keys = 512});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().what.find("mapping failed: the activations"), std::string::npos) << failed.error().what;
  EXPECT_TRUE(planned.time({.sequences = 1, .rows = 512, .scored = 32, .keys = 512}));
  EXPECT_FALSE(planned.time({.sequences = 1, .rows = 545, .scored = 32, .keys = 512}));
}

/// Roofline by hand: products of 32 rows are bound by arithmetic, those of one row by memory.
TEST(HostCpu, Roofline) {
  const Device device = *load_device("mobile-sm8750");
  Graph graph = graphs("llada-8b")({.rows = 32, .scored = 32});
  const auto find = [&](const char* output) -> const Op& {
    for (const Op& op : graph.ops)
      if (const auto* linear = std::get_if<op::Linear>(&op))
        if (graph.weight(linear->weight).name == output) return op;
    return graph.ops.front();
  };
  const double products = 4096.0 * 12288;
  const Op gate = find("blk.3.ffn_gate.weight");
  EXPECT_NEAR(host_operator(graph, device, gate, 1, 512).seconds, 2 * 32 * products / 1500e9, 1e-9);
  graph = graphs("llada-8b")({.rows = 1, .scored = 1});
  EXPECT_NEAR(host_operator(graph, device, gate, 1, 512).seconds, products * 0.5625 / 55e9, 1e-9);
  EXPECT_EQ(host_operator(graph, *load_device("mobile-v79"), gate, 1, 512).seconds, 0);
  EXPECT_FALSE(
      StepTimer::create(*load_device("mobile-v79"), graphs("llada-8b"), kMost, {.processor = StepProcessor::kHost}));
}

TEST(HostCpu, ExpertsReadWhatIsChosen) {
  const Device device = *load_device("mobile-sm8750");
  const HostWork one = host_step(graphs("llada-moe")({.rows = 1, .scored = 1}), device, 1, 256);
  const HostWork many = host_step(graphs("llada-moe")({.rows = 64, .scored = 64}), device, 1, 256);
  EXPECT_GT(many.bytes, 3 * one.bytes);
}

}  // namespace
}  // namespace dllm::npu
