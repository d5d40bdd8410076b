#include "npu_core/device/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "npu_core/config/embedded_files.h"
#include "npu_core/device/keys.h"
#include "npu_core/dram/memory_system.h"

namespace dllm::npu {
namespace {

std::string message(const std::string& text) {
  auto device = parse_device(text, "d.toml");
  return device ? "" : device.error().message();
}

constexpr const char* kHead = "base = \"dart-2048\"\nname = \"x\"\nsummary = \"\"\n";

/// A name may not promise a standard that the profile does not have; the hint has the new one.
TEST(Device, FormerNamesAreRefusedWithTheNewOne) {
  for (const std::string array : {"dart-512", "dart-1024", "dart-2048"}) {
    const std::string old = array + "-hbm4", now = array + "-hbm2e-x4";
    const auto device = load_device(old);
    ASSERT_FALSE(device) << old;
    EXPECT_NE(device.error().hint.find("'" + now + "'"), std::string::npos) << device.error().hint;
    const auto derived = parse_device("base = \"" + old + "\"\nname = \"x\"\nsummary = \"\"\n", "x.toml");
    ASSERT_FALSE(derived) << old;
    EXPECT_NE(derived.error().hint.find("'" + now + "'"), std::string::npos) << derived.error().hint;
    EXPECT_EQ(load_device(now)->memory.standard, "hbm2e-3200");
    EXPECT_EQ(load_device(now)->memory.stacks, 4);
  }
}

/// HBM and its generation in a shipped name are those of the profile's memory.
TEST(Device, NamesAgreeWithTheMemory) {
  for (const std::string& name : device_names()) {
    const std::size_t at = name.find("hbm");
    if (at == std::string::npos) continue;
    const std::string generation = name.substr(at, name.find('-', at) - at);
    EXPECT_TRUE(load_device(name)->memory.standard.starts_with(generation + "-")) << name;
  }
}

TEST(Device, ShippedProfiles) {
  const std::vector<std::string> names = device_names();
  for (const char* name : {"dart-512", "dart-1024", "dart-2048", "dart-2048-hbm2e-x4", "dart-2048-smooth", "plena-64",
                           "mobile-v75", "mobile-v79", "mobile-v81"}) {
    ASSERT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
    const auto device = load_device(name);
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_EQ(device->name, name);
    EXPECT_TRUE(dram::MemorySystem::create(device->memory_config, device->period_fs()));
  }
  const auto dart = load_device("dart-2048");
  EXPECT_NEAR(dart->peak_tops(), 524.3, 0.1);
  EXPECT_NEAR(dart->memory_gbps(), 819.2, 1e-9);
  EXPECT_NEAR(load_device("dart-2048-hbm2e-x4")->memory_gbps(), 1638.4, 1e-9);
  EXPECT_NEAR(load_device("mobile-v79")->peak_tops(), 21.6, 0.1);  // llada.cpp, arXiv 2606.13740, achieves 20.96
  EXPECT_NEAR(load_device("mobile-v79")->memory_gbps(), 60, 1e-9);
}

TEST(Device, UnknownKeysAndBadValuesHaveTheirLine) {
  EXPECT_EQ(message(std::string(kHead) + "[array]\nvlan = 4\n"),
            "d.toml:5: unknown key 'array.vlan' (did you mean 'vlen'?)");
  EXPECT_EQ(message(std::string(kHead) + "[aray]\n"), "d.toml:4: unknown key 'aray' (did you mean 'array'?)");
  EXPECT_NE(message(std::string(kHead) + "[array]\nvlen = 0\n").find("d.toml:5"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[array]\nvlen = 1.5\n").find("an integer"), std::string::npos);
  EXPECT_NE(message("name = \"x\"\nsummary = \"\"\n").find("there is no table 'array'"), std::string::npos);
  EXPECT_NE(message("base = \"dart-204\"\nname = \"x\"\nsummary = \"\"\n").find("d.toml:1"), std::string::npos);
}

TEST(Device, ContradictionsAreExplained) {
  EXPECT_NE(message(std::string(kHead) + "[array]\nblen = 96\n").find("not a multiple of BLEN"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[array]\nvlen = 3000\n").find("VLEN 3000"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[array]\nvlen = 64\n").find("VLEN 64 is not a multiple of MLEN"),
            std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[array]\nblen = 256\n").find("HLEN 128 is not a multiple of BLEN 256"),
            std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[sram]\nvector_rows = 100\n").find("less than BLEN"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[sram]\nmatrix_ports = 3\n").find("between 1 and 2"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[issue]\nwidth = 9\n").find("between 1 and 8"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[memory]\nstandard = \"hbm4\"\n").find("hbm4"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[memory]\nstacks = 3\n").find("power of two"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[memory]\nstacks = 16\n").find("at most 64"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[memory]\nrow_policy = \"ajar\"\n").find("open, closed"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[numerics]\nkv = \"int3\"\n").find("int3"), std::string::npos);
}

/// Derived values cannot be set, and follow the keys.
TEST(Device, DerivedKeys) {
  EXPECT_EQ(message(std::string(kHead) + "[array]\ntile_cycles = 1\n"),
            "d.toml:5: 'array.tile_cycles' follows from other keys and cannot be set (it is array.blen / "
            "array.macs_per_pe)");
  EXPECT_NE(message(std::string(kHead) + "[clock]\nvoltage = 1\n").find("clock.ghz"), std::string::npos);
  for (const char* blen : {"32", "64", "128"}) {
    const auto device = load_device("dart-2048", {{"array.blen", blen}});
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_DOUBLE_EQ(device->peak_tops(), 2e-3 * std::stod(blen) * 2048);
    EXPECT_DOUBLE_EQ(device->array.tile_cycles, std::stod(blen));
  }
}

TEST(Device, VoltageFollowsTheClock) {
  EXPECT_DOUBLE_EQ(load_device("dart-2048")->clock.voltage, 0.7);
  double last = 0;
  for (const char* ghz : {"0.5", "0.8", "1", "1.2", "1.6"}) {
    const auto device = load_device("dart-2048", {{"clock.ghz", ghz}});
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_GE(device->clock.voltage, last);
    last = device->clock.voltage;
  }
  EXPECT_NE(message(std::string(kHead) + "[clock]\nghz = 20\n").find("at most 1.8"), std::string::npos);
}

TEST(Device, OverridesOneKey) {
  const auto device = load_device("dart-2048", {*parse_override("memory.stacks=4"), *parse_override("clock.ghz=0.5")});
  ASSERT_TRUE(device) << device.error().message();
  EXPECT_EQ(device->memory_config.channels, 32);
  EXPECT_EQ(device->period_fs(), 2000000);
  EXPECT_EQ(load_device("dart-2048", {*parse_override("memory.row_policy=closed")})->memory_config.row_policy,
            dram::RowPolicy::kClosed);
  EXPECT_FALSE(load_device("dart-2048", {*parse_override("array.vlan=4")}));
  EXPECT_FALSE(load_device("dart-2048", {*parse_override("array.mlen=100")}));
  EXPECT_FALSE(parse_override("array.vlen"));
}

/// The phones differ from the NPUs they are based on in their host's processor and their body, whose limit is off.
TEST(Device, PhonesHaveAHost) {
  for (const auto& [phone, npu] : {std::pair{"mobile-sm8650", "mobile-v75"}, std::pair{"mobile-sm8750", "mobile-v79"},
                                   std::pair{"mobile-sm8850", "mobile-v81"}}) {
    auto with = load_device(phone), without = load_device(npu);
    ASSERT_TRUE(with && without) << phone;
    EXPECT_GT(with->host.cores, 0);
    EXPECT_EQ(without->host.cores, 0);
    EXPECT_LT(with->host.memory_gbps, with->memory_config.peak_gbps());
    EXPECT_EQ(with->thermal.sustained_w, 0);
    EXPECT_GT(with->thermal.capacity_j_per_k, 0);
    for (const DeviceKey& field : device_keys()) {
      if (field.section == "thermal") continue;
      if (field.section == "host" && field.key != "dispatch_us" && field.key != "dequantize_gbps") continue;
      if (field.kind == DeviceKey::kInteger) {
        EXPECT_EQ(field.integer(*with), field.integer(*without)) << field.key;
      } else if (field.kind == DeviceKey::kNumber) {
        EXPECT_EQ(field.number(*with), field.number(*without)) << field.key;
      }
    }
  }
  EXPECT_NE(message(std::string(kHead) + "[host]\ncores = 4\n").find("all four rates"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[host]\nf32_gflops = 4\n").find("all four rates"), std::string::npos);
  EXPECT_NE(message(std::string(kHead) + "[host]\nidle_w = 4\n").find("4 W idle"), std::string::npos);
}

/// The output can be read back: the resolved profile names every field.
TEST(Device, JsonNamesEveryField) {
  const auto json = device_json(*load_device("mobile-v79"));
  for (const DeviceKey& field : device_keys())
    EXPECT_TRUE(json.at(std::string(field.section)).contains(std::string(field.key))) << field.key;
}

TEST(Device, FormatBits) {
  EXPECT_DOUBLE_EQ(*format_bits("mxint4:32:plena"), 4.25);
  EXPECT_DOUBLE_EQ(*format_bits("mxfp8_e4m3:8:plena"), 9);
  EXPECT_DOUBLE_EQ(*format_bits("bf16"), 16);
  EXPECT_DOUBLE_EQ(*format_bits("q4_0"), 4.5);
}

}  // namespace
}  // namespace dllm::npu
