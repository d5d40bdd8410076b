#include "npu_compiler/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/architecture.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

using State = FittedParameter::State;

StepTimer::GraphFactory small_graphs() {
  return [shape = *load_model_shape("llada-8b")](StepShape step) {
    ModelDesc desc = shape.desc;
    desc.layers = 2;
    return shape.architecture->build(desc, step);
  };
}

/// What the models say that a device would measure, times random factors around 1.
class Bench {
 public:
  Bench(const Device& device, double noise) : device_(device), noise_(0, noise) {}

  Measurements products() {
    Measurements all;
    const double bandwidth = *achieved_bandwidth(device_) * 1e9, hertz = device_.clock.ghz * 1e9;
    for (const std::int64_t rows : {1, 16, 32, 64, 256, 1024, 4096})
      for (const auto& [outputs, inputs] :
           {std::pair<std::int64_t, std::int64_t>{32, 32}, {4096, 4096}, {12288, 4096}}) {
        // By hand: the longest of array, unpacking and memory, and the dispatch.
        const double bytes = static_cast<double>(outputs * inputs) * 0.5625;
        const double rooms =
            4.0 * static_cast<double>(rows * inputs) / static_cast<double>(device_.vector_sram_bytes());
        const double seconds =
            std::max({gemm_cycles(device_, rows, outputs, inputs) / hertz, bytes / (device_.host.dequantize_gbps * 1e9),
                      bytes * std::max(1.0, std::ceil(rooms)) / bandwidth}) +
            (device_.host.dispatch_us + device_.host.batch_us / 256) * 1e-6;
        all.gemms.push_back({rows, outputs, inputs, noisy(seconds)});
      }
    return all;
  }

  void add_mappings(Measurements& all) {
    for (const std::int64_t mb : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024}) {
      const double us = device_.window.map_us + device_.window.map_us_per_page * static_cast<double>(mb * 256);
      all.mappings.push_back({mb << 20, us * (1 + noise_(random_))});
    }
  }

  void add_steps(Measurements& all, bool host) {
    const auto graph = small_graphs();
    auto timer = StepTimer::create(device_, graph, {1, 256, 0, 4096},
                                   {.processor = host ? StepProcessor::kHost : StepProcessor::kDevice});
    for (const std::int64_t rows : {1, 8, 32, 64, 128, 256})
      for (const std::int64_t keys : {256, 4096})
        (host ? all.host_steps : all.steps)
            .push_back({rows, keys, noisy(timer->time({1, rows, rows, keys})->seconds())});
  }

 private:
  double noisy(double seconds) { return seconds * 1e6 * (1 + noise_(random_)); }

  Device device_;
  std::mt19937 random_{5};
  std::normal_distribution<double> noise_;
};

const CalibratedKey& key_of(const Calibration& result, const std::string& key) {
  return *std::ranges::find(result.keys, key, &CalibratedKey::key);
}

Device planted() {
  return *load_device("mobile-sm8750", {{"host.dispatch_us", "7"},
                                        {"array.macs_per_pe", "3.5"},
                                        {"host.dequantize_gbps", "41"},
                                        {"memory.dma_gbps", "44"},
                                        {"window.map_us", "420"},
                                        {"window.map_us_per_page", "0.11"},
                                        {"host.int8_gops", "900"},
                                        {"host.memory_gbps", "41"},
                                        {"host.f32_gflops", "120"}});
}

TEST(Calibrate, RecoversPlantedParameters) {
  Bench bench(planted(), 0);
  Measurements all = bench.products();
  bench.add_mappings(all);
  const auto result = calibrate(*load_device("mobile-sm8750"), small_graphs(), all);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_LT(result->worst, 1e-4);
  for (const auto& [key, value] : {std::pair{"host.dispatch_us", 7.0},
                                   {"array.macs_per_pe", 3.5},
                                   {"window.map_us", 420.0},
                                   {"window.map_us_per_page", 0.11}}) {
    EXPECT_EQ(key_of(*result, key).fit.state, State::kFitted) << key;
    EXPECT_NEAR(key_of(*result, key).fit.value / value, 1, 1e-3) << key;
  }
  // Products read each weight once and unpack it once, so they do not tell which of the two limits.
  const CalibratedKey &unpack = key_of(*result, "host.dequantize_gbps"), &transfer = key_of(*result, "memory.dma_gbps");
  const bool first = unpack.fit.state == State::kFitted;
  EXPECT_NEAR((first ? unpack : transfer).fit.value, 41, 0.1);
  EXPECT_EQ((first ? unpack : transfer).with, std::vector<std::string>{(first ? transfer : unpack).key});
  EXPECT_GE((first ? transfer : unpack).fit.value, 40.9);
  for (const char* key : {"host.int8_gops", "host.memory_gbps"}) {
    EXPECT_EQ(key_of(*result, key).fit.state, State::kUnused) << key;
    EXPECT_EQ(key_of(*result, key).fit.value, key_of(*result, key).before) << key;
  }
}

TEST(Calibrate, WithNoise) {
  Bench bench(planted(), 0.03);
  Measurements all = bench.products();
  bench.add_mappings(all);
  const auto result = calibrate(*load_device("mobile-sm8750"), small_graphs(), all);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->rms, 0.03, 0.01);
  for (const auto& [key, value] : {std::pair{"host.dispatch_us", 7.0},
                                   {"array.macs_per_pe", 3.5},
                                   {"window.map_us", 420.0},
                                   {"window.map_us_per_page", 0.11}}) {
    const CalibratedKey& one = key_of(*result, key);
    EXPECT_EQ(one.fit.state, State::kFitted) << key;
    EXPECT_NEAR(one.fit.value / value, 1, 0.06) << key;
    EXPECT_LT(std::abs(one.fit.value / value - 1), 4 * one.fit.error) << key;
  }
}

/// Steps have the same operators as StepTimer's, with the window's waiting and the host's part.
TEST(Calibrate, Steps) {
  Device device = planted();
  device.host.dequantize_gbps = 21;
  Bench bench(device, 0);
  Measurements all;
  bench.add_steps(all, false);
  bench.add_steps(all, true);
  const auto result = calibrate(*load_device("mobile-sm8750"), small_graphs(), all);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_LT(result->worst, 2e-3);
  for (const auto& [key, value] :
       {std::pair{"host.dequantize_gbps", 21.0}, {"host.int8_gops", 900.0}, {"host.memory_gbps", 41.0}}) {
    EXPECT_EQ(key_of(*result, key).fit.state, State::kFitted) << key;
    EXPECT_NEAR(key_of(*result, key).fit.value / value, 1, 1e-2) << key;
  }
}

TEST(Calibrate, OneSizeDoesNotTellDispatchFromTransfer) {
  Measurements all;
  for (int i = 0; i < 4; ++i) all.gemms.push_back({1, 4096, 4096, 500});
  const auto result = calibrate(*load_device("mobile-sm8750"), small_graphs(), all);
  ASSERT_TRUE(result);
  for (const CalibratedKey& key : result->keys) {
    EXPECT_NE(key.fit.state, State::kFitted) << key.key;
    EXPECT_EQ(key.fit.value, key.before) << key.key;
  }
  EXPECT_EQ(key_of(*result, "host.dispatch_us").fit.state, State::kInseparable);
}

TEST(Calibrate, WritesAProfile) {
  Bench bench(planted(), 0);
  const auto result = calibrate(*load_device("mobile-sm8750"), small_graphs(), bench.products());
  ASSERT_TRUE(result);
  for (const char* base : {"mobile-sm8750", ""}) {
    const std::string text = calibrated_profile(*result, base, "mine", "a command\nof two lines");
    const auto device = parse_device(text, "mine.toml");
    ASSERT_TRUE(device) << device.error().message() << text;
    EXPECT_EQ(device->name, "mine");
    EXPECT_EQ(device->host.dispatch_us, result->device.host.dispatch_us);
    EXPECT_EQ(device->array.macs_per_pe, result->device.array.macs_per_pe);
    EXPECT_EQ(device->memory.dma_gbps, result->device.memory.dma_gbps);
    EXPECT_EQ(device->window.map_us, 200);
    EXPECT_NE(text.find("# fitted"), std::string::npos);
  }
}

TEST(Calibrate, RefusesWhatItCannotUse) {
  EXPECT_FALSE(calibrate(*load_device("mobile-sm8750"), small_graphs(), {}));
  Measurements host;
  host.host_gemms.push_back({1, 32, 32, 5});
  EXPECT_EQ(calibrate(*load_device("mobile-v79"), small_graphs(), host).error().code, ErrorCode::kUnsupported);
}

/// Times of the profile itself in other units, for every file of times.
TEST(Calibrate, RefusesTimesInOtherUnits) {
  const Device device = *load_device("mobile-sm8750");
  const auto usual = [&](double factor) {
    Measurements m;
    m.gemms = {{32, 4096, 4096, 400 * factor}};
    m.host_gemms = {{32, 4096, 4096, 800 * factor}};
    m.mappings = {{1 << 20, 240 * factor}};
    return m;
  };
  EXPECT_TRUE(calibrate(device, small_graphs(), usual(1)));
  for (const double other : {0.05, 20.0}) EXPECT_TRUE(calibrate(device, small_graphs(), usual(other))) << other;
  for (const auto& [factor, unit] : {std::pair{1e-6, "look like seconds"},
                                     {1e-3, "look like milliseconds"},
                                     {1e3, "look like nanoseconds"},
                                     {1e9, "begin with a profile"}})
    for (const char* flag : {"--gemms", "--host-gemms", "--mappings"}) {
      Measurements m, all = usual(factor);
      if (flag == std::string_view("--gemms")) m.gemms = all.gemms;
      if (flag == std::string_view("--host-gemms")) m.host_gemms = all.host_gemms;
      if (flag == std::string_view("--mappings")) m.mappings = all.mappings;
      const auto result = calibrate(device, small_graphs(), m);
      ASSERT_FALSE(result) << flag << " " << factor;
      EXPECT_EQ(result.error().where, flag);
      EXPECT_NE(result.error().hint.find(unit), std::string::npos) << flag << ": " << result.error().hint;
    }
}

/// One row in another unit does not hide among the others.
TEST(Calibrate, RefusesOneTimeInAnotherUnit) {
  const Device device = *load_device("mobile-sm8750");
  StepTimer timer = *StepTimer::create(device, small_graphs(), {1, 64, 64, 128}, {});
  Measurements m;
  for (const std::int64_t rows : {16, 32, 64})
    m.steps.push_back({rows, 128, timer.time({1, rows, rows, 128})->seconds() * 1e6});
  EXPECT_TRUE(calibrate(device, small_graphs(), m));
  m.steps[1].us *= 1e3;
  const auto result = calibrate(device, small_graphs(), m);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().where, "--steps");
  EXPECT_NE(result.error().what.find("step of 32 rows"), std::string::npos) << result.error().what;
  Measurements shared;
  shared.shared_steps = {{32, 128, 8, 64, 1e9}};
  EXPECT_EQ(calibrate(device, small_graphs(), shared).error().where, "--shared-steps");
}

TEST(Measurements, BeginWithAByteOrderMark) {
  const std::string plain = "rows,keys,us\n32,512,1e5\n";
  EXPECT_TRUE(parse_steps("\xEF\xBB\xBF" + plain, "s.csv"));
  EXPECT_FALSE(parse_steps("\xEF\xBB\xBF\xEF\xBB\xBF" + plain, "s.csv"));
  const auto wide = parse_steps(std::string("\xFF\xFEr\0o\0w\0s\0", 10), "s.csv");
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().what.find("UTF-16"), std::string::npos);
}

TEST(Measurements, Reads) {
  const auto gemms =
      parse_gemms("# a phone\ninputs, rows,us,outputs\n4096,1,12.5,128 # cold\r\n\n64,2,3e2,32\n", "g.csv");
  ASSERT_TRUE(gemms) << gemms.error().message();
  ASSERT_EQ(gemms->size(), 2);
  EXPECT_EQ(gemms->front().inputs, 4096);
  EXPECT_EQ(gemms->front().outputs, 128);
  EXPECT_EQ(gemms->front().us, 12.5);
  EXPECT_EQ(gemms->back().us, 300);
  for (const char* bad : {"", "rows,us\n1,2\n", "bytes,us\n", "bytes,us\n1\n", "bytes,us\n0,1\n", "bytes,us\n1,0\n",
                          "bytes,us\n1,nan\n", "bytes,us\n1.5,2\n", "bytes,us\n1,2,3\n", "bytes,bytes\n1,2\n"}) {
    const auto read = parse_mappings(bad, "m.csv");
    ASSERT_FALSE(read) << bad;
    EXPECT_NE(read.error().where.find("m.csv, line"), std::string::npos) << bad;
  }
  EXPECT_TRUE(parse_steps("rows,keys,us\n32,512,1e5", "s.csv"));
}

}  // namespace
}  // namespace dllm::npu
