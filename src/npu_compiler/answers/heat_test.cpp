#include "npu_compiler/answers/heat.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/architecture.h"
#include "npu_compiler/answers/answer_clock.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

Device limited(const char* watts) { return *load_device("mobile-sm8750", {{"thermal.sustained_w", watts}}); }

/// 4 W, 20 K, 60 J/K: 5 K/W and a time constant of 300 s.
TEST(Heat, RisesAsACapacityThatLosesHeat) {
  HeatModel heat(limited("4").thermal);
  heat.add(8 * 100, 100);
  EXPECT_NEAR(heat.rise(), 40 * (1 - std::exp(-1.0 / 3)), 1e-9);
  EXPECT_FALSE(heat.throttled());
  // Time may be cut anywhere.
  HeatModel pieces(limited("4").thermal);
  for (int i = 0; i < 1000; ++i) pieces.add(0.8, 0.1);
  EXPECT_NEAR(pieces.rise(), heat.rise(), 1e-9);
  heat.add(8 * 200, 200);
  EXPECT_TRUE(heat.throttled());
  const double hot = heat.rise();
  heat.add(0, 10);
  EXPECT_LT(heat.rise(), hot);
  heat.add(0, 100);
  EXPECT_LT(heat.rise(), 18);
  EXPECT_FALSE(heat.throttled());
  HeatModel sustained(limited("4").thermal);
  for (int i = 0; i < 100; ++i) sustained.add(3.99 * 100, 100);
  EXPECT_FALSE(sustained.throttled());
  EXPECT_NEAR(sustained.rise(), 3.99 * 5, 1e-6);
}

TEST(Heat, OffWithoutALimit) {
  HeatModel heat(load_device("mobile-sm8750")->thermal);
  heat.add(1e6, 1);
  EXPECT_EQ(heat.rise(), 0);
  EXPECT_FALSE(heat.throttled());
}

TEST(Heat, ThrottledDevice) {
  const Device device = limited("4"), slow = throttled(device);
  const double ratio = 1.2 / 2.114;
  EXPECT_DOUBLE_EQ(slow.host.int8_gops, device.host.int8_gops * ratio);
  EXPECT_DOUBLE_EQ(slow.host.memory_gbps, device.host.memory_gbps);
  EXPECT_LT(slow.clock.voltage, device.clock.voltage);
  EXPECT_LT(slow.host.active_w, device.host.active_w * ratio);
  EXPECT_GT(slow.host.active_w, device.host.active_w * ratio * ratio * ratio * ratio);
  EXPECT_TRUE(validate(slow));
}

/// A hot phone's steps take longer and less power; the clock notes which.
TEST(Heat, ClockOfAHotPhone) {
  const ModelShape shape = *load_model_shape("llada-8b");
  const auto graph = [&](StepShape step) { return shape.architecture->build(shape.desc, step); };
  const Device device = limited("2");
  const StepTotals work{1, 32, 32, 256};
  StepTimer full = *StepTimer::create(device, graph, work, {}),
            slow = *StepTimer::create(throttled(device), graph, work, {});
  AnswerClock clock(device, StepProcessor::kDevice);
  std::size_t first = 0, switches = 0;
  for (std::size_t i = 0; i < 20000; ++i) {
    const bool was = clock.throttled();
    clock.advance(work, **(was ? slow : full).profile(work));
    EXPECT_EQ(clock.steps().back().throttled, was);
    if (first == 0 && clock.throttled()) first = i;
    switches += clock.throttled() != was ? 1 : 0;
  }
  const StepTime fast_time = clock.steps()[1].time, slow_time = clock.steps()[first + 1].time;
  EXPECT_GT(slow_time.seconds(), 1.5 * fast_time.seconds());
  EXPECT_LT(slow_time.energy.joules() / slow_time.seconds(), fast_time.energy.joules() / fast_time.seconds());
  EXPECT_GT(switches, 1);  // it cools, and runs fast again
  // In the long run it takes what can be kept up, within the two clocks' range of temperatures.
  EXPECT_NEAR(clock.sum().energy.joules() / clock.sum().seconds(), 2, 0.2);
  const double rise = clock.steps().back().rise;
  clock.reset();
  EXPECT_FALSE(clock.throttled());
  clock.advance(work, **full.profile(work));
  EXPECT_LT(clock.steps().back().rise, 0.1);
  EXPECT_GT(rise, 17);
}

TEST(Heat, RefusesHalfALimit) {
  for (const char* key : {"thermal.rise_k", "thermal.capacity_j_per_k", "thermal.throttled_ghz"}) {
    const auto device = load_device("mobile-sm8750", {{"thermal.sustained_w", "4"}, {key, "0"}});
    ASSERT_FALSE(device) << key;
    EXPECT_NE(device.error().what.find(key), std::string::npos);
  }
  EXPECT_FALSE(load_device("mobile-sm8750", {{"thermal.sustained_w", "4"}, {"thermal.throttled_ghz", "2.2"}}));
  EXPECT_FALSE(load_device("mobile-sm8750", {{"thermal.sustained_w", "4"}, {"thermal.resume_k", "20"}}));
}

}  // namespace
}  // namespace dllm::npu
