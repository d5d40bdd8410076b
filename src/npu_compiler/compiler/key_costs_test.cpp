// Nothing of a device is free. Every key is one of two kinds. A choice costs more area or energy with each more capable
// value. A fact is about the process, the surroundings or the prices, and no design can choose it.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "npu_compiler/compiler/device_step.h"
#include "npu_core/device/energy.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

/// Figures of a step; of each, less is better.
struct Figures {
  double seconds = 0, joules = 0, mm2 = 0;
};

/// One layer and a short head: 32 rows of one sequence, simulated.
Figures figures_of(const std::string& profile, const std::vector<Override>& changes) {
  const auto device = load_device(profile, changes);
  EXPECT_TRUE(device) << device.error().message();
  if (!device) return {};
  ModelShape shape = *load_model_shape("llada-8b");
  ModelDesc& d = shape.desc;
  d.layers = 1, d.vocab = 1024, d.width = d.ffn_width = 1024;
  d.head_dim = d.rope_dims = 64;
  d.heads = d.kv_heads = 16;
  const auto step = compile_step(shape, *device, {.size = {.sequences = 1, .rows = 32, .keys = 128}});
  EXPECT_TRUE(step) << step.error().message();
  if (!step) return {};
  TimingOptions options;
  apply_issue(device->issue, options);
  options.repeat = true;
  const auto report = simulate(*device, step->machine, step->step.program, options);
  EXPECT_TRUE(report) << report.error().message();
  if (!report) return {};
  return {report->seconds(*device), report->joules, area(*device).total()};
}

/// Whether design `a` costs more silicon or more joules than `b`, by more than rounding.
bool dearer(const Figures& a, const Figures& b) {
  return a.mm2 > b.mm2 * (1 + 1e-9) || a.joules > b.joules * (1 + 1e-9);
}

struct Choice {
  std::string_view key;
  std::vector<const char*> values;  ///< from the least to the most capable
  const char* profile = "dart-512";
  std::vector<Override> others = {};  ///< further changes, which the values need to be possible or to matter
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {"array.blen", {"8", "16", "32"}},
      {"array.mlen", {"128", "256", "512"}},
      {"array.vlen", {"512", "1024"}},
      {"array.hlen", {"512", "128", "64"}},  // shorter heads: more of them at once
      {"array.macs_per_pe", {"0.5", "1", "2"}},
      {"array.vector_units", {"1", "2", "4"}},
      {"array.noise_lanes", {"0", "8", "64"}},
      {"clock.ghz", {"0.9", "1", "1.2", "1.5"}},
      {"clock.nominal_ghz", {"1", "1.3", "2"}},
      {"issue.width", {"1", "2", "4"}},
      {"issue.queue", {"4", "16", "64"}},
      {"issue.vector_starts", {"1", "2", "3"}},
      {"issue.chaining", {"0", "1"}},
      {"issue.accumulators", {"1", "2", "4"}},
      {"sram.matrix_tiles", {"128", "256", "512"}},
      {"sram.vector_rows", {"16384", "32768"}},
      {"sram.fp_words", {"4096", "8192"}},
      {"sram.int_words", {"32768", "65536"}},
      {"sram.vector_ports", {"1", "2", "3"}},
      {"sram.matrix_ports", {"1", "2"}},
      {"sram.instruction_words", {"64", "1024", "16384"}},
      {"memory.standard", {"hbm2-2000", "hbm2e-3200", "hbm3-6400"}},
      {"memory.standard",
       {"lpddr5x-8533", "lpddr5x-9600", "lpddr5x-10667"},
       "mobile-v81-mx",
       {{"memory.dma_gbps", "0"}}},
      {"memory.stacks", {"1", "2", "4"}},
      {"memory.dma_gbps", {"100", "400", "819"}},
      {"prefetch.outstanding", {"1", "8", "64"}},
      {"latency.vector_add", {"8", "4", "2", "1"}},
      {"latency.vector_mul", {"4", "2", "1"}},
      {"latency.vector_exp", {"4", "2", "1"}},
      {"latency.vector_reci", {"4", "2", "1"}},
      {"latency.vector_max", {"8", "4", "1"}},
      {"latency.vector_sum", {"16", "8", "1"}},
      {"latency.scalar_fp", {"4", "2", "1"}},
      {"latency.scalar_special", {"4", "2", "1"}},
      {"latency.scalar_int", {"4", "2", "1"}},
      {"latency.prefix_scan", {"18", "9", "1"}},
      {"latency.shift", {"4", "2", "1"}},
      {"latency.vector_draw", {"72", "36", "1"}, "dart-512", {{"array.noise_lanes", "8"}}},
      {"numerics.weight", {"mxint4:32:plena", "mxint8:32:ocp", "bf16"}},
      {"numerics.activation", {"mxint4:32:ocp", "mxint8:32:ocp", "mxfp8_e4m3:32:ocp"}},
      {"numerics.activation", {"mxint8:32:ocp", "bf16"}},
      {"numerics.kv", {"mxint4:32:plena", "mxint8:32:ocp", "bf16"}},
      {"numerics.logits", {"mxint4:32:ocp", "mxfp8_e4m3:32:ocp", "bf16"}},
      {"host.dequantize_gbps", {"13", "26", "52", "0"}, "mobile-v81"},
  };
  return all;
}

/// Keys that no design chooses, and why a better value is no improvement of a design.
struct Facts {
  const char* reason;
  std::vector<std::string_view> keys;  ///< "energy.": the whole section
};
const std::vector<Facts>& facts() {
  static const std::vector<Facts> all = {
      {"a property of the process and its transistors",
       {"clock.nominal_v", "clock.min_v", "clock.max_v", "clock.threshold_v", "clock.alpha"}},
      {"a price: what work costs, not what is built", {"energy.", "memory.phy_mm2"}},
      {"a rule of the memory controller, whose figures are the DRAM's; refresh = none, for comparisons, loses data",
       {"memory.mapping", "memory.row_policy", "memory.refresh"}},
      {"the distance to the memory", {"memory.frontend_ns"}},
      {"a length in instructions of hand-written programs; compiled steps set their own",
       {"prefetch.matrix_rows", "prefetch.vector_rows", "prefetch.writeback_rows"}},
      {"an algorithm, whose price is its instructions",
       {"numerics.smooth_keys", "numerics.smooth_values", "numerics.smooth_alpha"}},
      {"the host's processor and driver",
       {"host.dispatch_us", "host.batch_us", "host.batch_ops", "host.cores", "host.int8_gops", "host.f16_gflops",
        "host.f32_gflops", "host.memory_gbps", "host.shared_gbps", "host.active_w", "host.idle_w"}},
      {"the operating system's windows of addresses", {"window."}},
      {"the body around the chip", {"thermal."}},
  };
  return all;
}

/// The reason why a key is a fact; nullptr: it is none.
const char* reason_of(const std::string& key) {
  for (const Facts& one : facts())
    for (const std::string_view name : one.keys)
      if (name.ends_with('.') ? key.starts_with(name) : key == name) return one.reason;
  return nullptr;
}

/// Fails for a key that neither choices() nor facts() lists: add a new key to one of them.
TEST(KeyCosts, EveryKeyIsAChoiceOrAFact) {
  std::set<std::string> chosen;
  for (const Choice& one : choices()) chosen.emplace(one.key);
  for (const DeviceKey& key : device_keys())
    EXPECT_EQ(chosen.erase(key.dotted()), reason_of(key.dotted()) == nullptr ? 1u : 0u) << key.dotted();
  EXPECT_TRUE(chosen.empty()) << *chosen.begin();
  for (const Facts& one : facts())
    for (const std::string_view name : one.keys)
      EXPECT_TRUE(name.ends_with('.') || find_device_key(name) != nullptr) << name;
}

/// Each more capable value costs more silicon or joules, so no choice improves one figure without worsening another.
TEST(KeyCosts, WhatIsMoreCapableCostsMore) {
  for (const Choice& one : choices()) {
    Figures last;
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      std::vector<Override> changes = one.others;
      changes.push_back({std::string(one.key), one.values[i]});
      const Figures now = figures_of(one.profile, changes);
      if (i > 0) {
        EXPECT_TRUE(dearer(now, last)) << one.key << " from " << one.values[i - 1] << " to " << one.values[i] << ": "
                                       << last.seconds << " s, " << last.joules << " J, " << last.mm2 << " mm2 become "
                                       << now.seconds << " s, " << now.joules << " J, " << now.mm2 << " mm2";
      }
      last = now;
    }
  }
}

/// Some of these choices make the step above faster, so it can tell their values apart.
TEST(KeyCosts, WhatIsMoreCapableIsFaster) {
  const auto seconds = [](const char* key, const char* value) {
    return figures_of("dart-512", {{key, value}}).seconds;
  };
  EXPECT_LT(seconds("memory.standard", "hbm3-6400"), seconds("memory.standard", "hbm2-2000"));
  EXPECT_LT(seconds("latency.vector_exp", "1"), seconds("latency.vector_exp", "40"));
  EXPECT_LT(seconds("clock.ghz", "1.2"), seconds("clock.ghz", "1"));
  EXPECT_LT(seconds("numerics.weight", "mxint4:32:plena"), seconds("numerics.weight", "bf16"));
}

/// What once improved figures at no cost: wide formats, a newer standard, three gigahertz, latencies of one cycle.
TEST(KeyCosts, FormerlyFree) {
  const Figures plain = figures_of("dart-512", {});
  for (const char* key : {"numerics.activation", "numerics.weight", "numerics.kv"}) {
    const Figures wide = figures_of("dart-512", {{key, "bf16"}});
    EXPECT_GT(wide.mm2, plain.mm2) << key;
    EXPECT_GT(wide.joules, plain.joules) << key;
    EXPECT_GT(area(*load_device("dart-512", {{key, "bf16"}})).matrix, 1.05 * area(*load_device("dart-512")).matrix)
        << key;
  }
  const Device fast = *load_device("dart-512", {{"memory.standard", "hbm3-6400"}}), usual = *load_device("dart-512");
  EXPECT_NEAR(area(fast).phy, 1.6 * area(usual).phy, 1e-9);
  EXPECT_FALSE(load_device("dart-512", {{"clock.ghz", "3"}}));
  const auto ghz = load_device("dart-512", {{"clock.ghz", "3"}, {"clock.nominal_ghz", "3"}});
  ASSERT_TRUE(ghz) << ghz.error().message();
  EXPECT_GT(area(*ghz).vector, 1.5 * area(usual).vector);
  EXPECT_GT(area(*ghz).matrix, 1.2 * area(usual).matrix);
  std::vector<Override> ones;
  for (const DeviceKey& key : device_keys())
    if (key.section == "latency") ones.push_back({key.dotted(), "1"});
  EXPECT_GT(area(*load_device("dart-512", ones)).vector, 1.5 * area(usual).vector);
}

}  // namespace
}  // namespace dllm::npu
