// Shared memory bandwidth and energies: what a device with planted keys would measure gives these back.
#include "npu_compiler/calibrate/further_fits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/architecture.h"
#include "npu_compiler/answers/answer_clock.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

using State = FittedParameter::State;

StepTimer::GraphFactory two_layers() {
  return [shape = *load_model_shape("llada-8b")](StepShape step) {
    ModelDesc desc = shape.desc;
    desc.layers = 2;
    return shape.architecture->build(desc, step);
  };
}

const CalibratedKey& fitted(const Calibration& result, const std::string& key) {
  return *std::ranges::find(result.keys, key, &CalibratedKey::key);
}

class Noise {
 public:
  explicit Noise(double sigma) : noise_(0, sigma) {}
  double operator()(double value) { return value * (1 + noise_(random_)); }

 private:
  std::mt19937 random_{11};
  std::normal_distribution<double> noise_;
};

/// By the clock of answers, whose host works on many refreshes during one step.
std::vector<Measurements::Shared> measured_together(const Device& device, Noise noise) {
  std::vector<Measurements::Shared> all;
  auto timer = StepTimer::create(device, two_layers(), {1, 128, 0, 2048}, {});
  for (const std::int64_t rows : {8, 32, 64, 128})
    for (const std::int64_t host_rows : {1, 8})
      for (const std::int64_t keys : {256, 2048}) {
        AnswerClock clock(device, StepProcessor::kDevice);
        const auto host = host_stretches(two_layers()({.rows = host_rows, .scored = host_rows}), device, 1, keys);
        for (int i = 0; i < 50; ++i) clock.launch({1, host_rows, host_rows, keys}, host);
        clock.advance({1, rows, rows, keys}, **timer->profile({1, rows, rows, keys}));
        all.push_back({rows, keys, host_rows, keys, noise(clock.sum().seconds() * 1e6)});
      }
  return all;
}

TEST(FurtherFits, RecoversTheSharedBandwidth) {
  const Device planted = *load_device("mobile-sm8750", {{"host.shared_gbps", "57"}});
  Measurements all;
  all.shared_steps = measured_together(planted, Noise(0));
  const auto exact = calibrate(*load_device("mobile-sm8750"), two_layers(), all);
  ASSERT_TRUE(exact) << exact.error().message();
  EXPECT_EQ(fitted(*exact, "host.shared_gbps").fit.state, State::kFitted);
  EXPECT_NEAR(exact->device.host.shared_gbps, 57, 0.01);
  EXPECT_EQ(exact->residuals.size(), all.shared_steps.size());
  EXPECT_LT(exact->worst, 1e-4);

  all.shared_steps = measured_together(planted, Noise(0.01));
  const auto noisy = calibrate(*load_device("mobile-sm8750"), two_layers(), all);
  ASSERT_TRUE(noisy);
  const CalibratedKey& key = fitted(*noisy, "host.shared_gbps");
  EXPECT_NEAR(noisy->device.host.shared_gbps / 57, 1, 0.06);
  EXPECT_LT(std::abs(key.fit.value / 57 - 1), 4 * key.fit.error);
  EXPECT_NEAR(noisy->rms, 0.01, 0.005);
}

TEST(FurtherFits, SharedBandwidthThatLimitsNothing) {
  Measurements all;
  all.shared_steps = measured_together(*load_device("mobile-sm8750", {{"host.shared_gbps", "500"}}), Noise(0));
  const auto bounded = calibrate(*load_device("mobile-sm8750"), two_layers(), all);
  ASSERT_TRUE(bounded);
  EXPECT_EQ(fitted(*bounded, "host.shared_gbps").fit.state, State::kBounded);
  EXPECT_GT(bounded->device.host.shared_gbps, 68);
  EXPECT_LT(bounded->device.host.shared_gbps, 500);
  const auto unused = calibrate(*load_device("mobile-sm8750", {{"host.shared_gbps", "400"}}), two_layers(), all);
  ASSERT_TRUE(unused);
  EXPECT_EQ(fitted(*unused, "host.shared_gbps").fit.state, State::kUnused);
  EXPECT_EQ(unused->device.host.shared_gbps, 400);
  EXPECT_EQ(calibrate(*load_device("mobile-v79"), two_layers(), all).error().code, ErrorCode::kUnsupported);
}

Device planted_energy() {
  return *load_device("mobile-sm8750", {{"energy.mac_pj", "0.9"},
                                        {"energy.dram_read_pj_per_byte", "24"},
                                        {"energy.dram_write_pj_per_byte", "27"},
                                        {"energy.dram_activate_pj", "1800"},
                                        {"energy.dram_io_pj_per_byte", "36"},
                                        {"host.active_w", "7.5"}});
}

/// Energies of steps and products, or their mean powers.
Measurements measured_energies(const Device& device, Noise noise, bool watts) {
  Measurements all;
  const auto value = [&](const StepTime& time) {
    return Measurements::Energy{noise(time.energy.joules() / (watts ? time.seconds() : 1)), watts};
  };
  for (const auto processor : {StepProcessor::kDevice, StepProcessor::kHost}) {
    auto timer = StepTimer::create(device, two_layers(), {1, 1024, 0, 4096}, {.processor = processor});
    for (const std::int64_t rows : {1, 32, 128, 512, 1024})
      for (const std::int64_t keys : {1024, 4096})
        (processor == StepProcessor::kDevice ? all.step_energies : all.host_step_energies)
            .push_back({rows, keys, value(*timer->time({1, rows, rows, keys}))});
  }
  for (const std::int64_t rows : {1, 512, 4096})
    for (const std::int64_t outputs : {32, 12288}) {
      const Measurements::Gemm product{rows, outputs, 4096, 0};
      const auto graph = [&product](StepShape step) {
        return product_graph({step.rows, product.outputs, product.inputs, 0});
      };
      auto timer = StepTimer::create(device, graph, {1, rows, 0, 1}, {});
      all.gemm_energies.push_back({product, value(*timer->time({1, rows, 0, 1}))});
    }
  return all;
}

TEST(FurtherFits, RecoversPlantedEnergies) {
  for (const bool watts : {false, true}) {
    const auto result =
        calibrate(*load_device("mobile-sm8750"), two_layers(), measured_energies(planted_energy(), Noise(0), watts));
    ASSERT_TRUE(result) << result.error().message();
    EXPECT_LT(result->worst, 1e-3);
    EXPECT_EQ(result->residuals.front().unit, "J");
    for (const auto& [key, planted] : {std::pair{"energy.mac_pj", 0.9},
                                       {"energy.dram_read_pj_per_byte", 24.0},
                                       {"energy.dram_io_pj_per_byte", 36.0},
                                       {"host.active_w", 7.5}}) {
      EXPECT_EQ(fitted(*result, key).fit.state, State::kFitted) << key;
      EXPECT_NEAR(fitted(*result, key).fit.value / planted, 1, 1e-2) << key;
    }
    // One factor for all that traffic costs.
    const CalibratedKey& read = fitted(*result, "energy.dram_read_pj_per_byte");
    EXPECT_TRUE(std::ranges::count(read.with, "energy.dram_io_pj_per_byte") == 1);
    EXPECT_NEAR(fitted(*result, "energy.dram_io_pj_per_byte").fit.value / read.fit.value, 1.5, 1e-4);
  }
}

TEST(FurtherFits, EnergiesWithNoise) {
  const auto result =
      calibrate(*load_device("mobile-sm8750"), two_layers(), measured_energies(planted_energy(), Noise(0.02), false));
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->rms, 0.02, 0.01);
  for (const auto& [key, planted] : {std::pair{"energy.dram_io_pj_per_byte", 36.0}, {"host.active_w", 7.5}}) {
    const CalibratedKey& one = fitted(*result, key);
    EXPECT_TRUE(determined(one.fit)) << key;
    EXPECT_NEAR(one.fit.value / planted, 1, 0.1) << key;
    EXPECT_LT(std::abs(one.fit.value / planted - 1), 4 * one.fit.error) << key;
  }
}

/// Steps of one size: everything has one factor, and the report says so.
TEST(FurtherFits, OneEnergyTellsNothingApart) {
  Measurements all;
  for (int i = 0; i < 3; ++i) all.step_energies.push_back({32, 1024, {0.05, false}});
  const auto result = calibrate(*load_device("mobile-sm8750"), two_layers(), all);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_LT(result->worst, 1e-3);
  const CalibratedKey& mac = fitted(*result, "energy.mac_pj");
  EXPECT_TRUE(determined(mac.fit));
  EXPECT_GE(std::ranges::count(mac.with, "energy.dram_read_pj_per_byte"), 1);
  EXPECT_NEAR(mac.fit.value / mac.before, result->device.host.active_w / 11, 1e-3);
}

TEST(FurtherFits, WritesAProfile) {
  const auto result =
      calibrate(*load_device("mobile-sm8750"), two_layers(), measured_energies(planted_energy(), Noise(0), false));
  ASSERT_TRUE(result);
  const auto device = parse_device(calibrated_profile(*result, "mobile-sm8750", "mine", "a command"), "mine.toml");
  ASSERT_TRUE(device) << device.error().message();
  EXPECT_EQ(device->energy.dram_io_pj_per_byte, result->device.energy.dram_io_pj_per_byte);
  EXPECT_EQ(device->host.active_w, result->device.host.active_w);
}

TEST(FurtherFits, Reads) {
  const auto joules = parse_step_energies("rows,keys,joules\n32,512,0.25\n", "e.csv");
  const auto watts = parse_step_energies("watts,rows,keys\n3.5,32,512\n", "e.csv");
  ASSERT_TRUE(joules && watts);
  EXPECT_FALSE(joules->front().energy.watts);
  EXPECT_TRUE(watts->front().energy.watts);
  EXPECT_EQ(watts->front().energy.value, 3.5);
  EXPECT_EQ(parse_gemm_energies("rows,outputs,inputs,joules\n1,2,3,4\n", "e.csv")->front().product.inputs, 3);
  EXPECT_EQ(parse_shared_steps("rows,keys,host_rows,host_keys,us\n1,2,3,4,5\n", "e.csv")->front().host_keys, 4);
  for (const char* bad : {"rows,keys,joules,watts\n1,2,3,4\n", "rows,keys,us\n1,2,3\n", "rows,keys,watts\n1,2,-3\n"})
    EXPECT_FALSE(parse_step_energies(bad, "e.csv")) << bad;
}

}  // namespace
}  // namespace dllm::npu
