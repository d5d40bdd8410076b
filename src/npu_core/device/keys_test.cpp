#include "npu_core/device/keys.h"

#include <gtest/gtest.h>

#include <set>

#include "npu_core/config/embedded_files.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

std::string fault_of(const std::string& profile) {
  const auto device = parse_device(profile, "d.toml");
  return device ? "" : device.error().message();
}

/// The profile of dart-2048, which has no base, without the line of a key.
std::string complete_profile_without(const DeviceKey& key) {
  const std::string text(find_embedded_file(core_profiles(), "devices/dart-2048")->text);
  const std::size_t section = text.find("[" + std::string(key.section) + "]");
  const std::size_t line = text.find("\n" + std::string(key.key) + " = ", section);
  return text.substr(0, line) + text.substr(text.find('\n', line + 1));
}

TEST(DeviceKeys, AreDeclaredSensibly) {
  std::set<std::string> names;
  const Device usual;
  for (const DeviceKey& key : device_keys()) {
    EXPECT_TRUE(names.insert(key.dotted()).second) << key.dotted();
    EXPECT_EQ(find_device_key(key.dotted()), &key);
    EXPECT_NE(key.readers, 0u) << key.dotted() << " is read by nothing";
    EXPECT_FALSE(key.meaning.empty()) << key.dotted();
    for (const std::string_view needed : key.needed_keys()) EXPECT_NE(find_device_key(needed), nullptr) << needed;
    if (key.required) continue;
    Device copy = usual;
    EXPECT_TRUE(key.kind == DeviceKey::kText ? key.accepts(key.text(copy)) : key.in_range(usual))
        << key.dotted() << ": the default is out of range";
  }
  EXPECT_EQ(find_device_key("array.vlan"), nullptr);
}

/// A key that is added later has a default, so that complete profiles of users go on loading.
TEST(DeviceKeys, ProfilesMayLackKeysWithADefault) {
  const Device usual;
  for (const DeviceKey& key : device_keys()) {
    const auto device = parse_device(complete_profile_without(key), "d.toml");
    EXPECT_EQ(static_cast<bool>(device), !key.required) << key.dotted();
    if (device) {
      EXPECT_EQ(key.value(*device), key.value(usual)) << key.dotted();
    } else {
      EXPECT_NE(device.error().message().find("'" + key.dotted() + "'"), std::string::npos) << device.error().message();
    }
  }
}

TEST(DeviceKeys, VerbsNameRowsAndKeysThatExist) {
  std::set<std::string_view> names;
  for (const DeviceVerb& row : device_verbs()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string_view key : split_words(row.except)) EXPECT_NE(find_device_key(key), nullptr) << key;
    EXPECT_TRUE(!row.extends || names.contains(row.name.substr(0, row.name.rfind(" --")))) << row.name;
  }
}

std::string refused(const Override& change, const VerbUse& use, const std::vector<Override>& more = {}) {
  std::vector<Override> all = more;
  all.push_back(change);
  const auto device = load_device("dart-2048", all);
  const auto read = check_changes({change}, *device, use);
  return read ? "" : read.error().message();
}

TEST(DeviceKeys, ChangesThatNothingReadsAreErrors) {
  EXPECT_EQ(refused({"memory.frontend_ns", "50"}, {"npu step"}), "");
  const std::string words = refused({"memory.frontend_ns", "50"}, {"npu analyze"});
  EXPECT_NE(words.find("--set memory.frontend_ns: 'memory.frontend_ns' is not read by dllm npu analyze"),
            std::string::npos)
      << words;
  EXPECT_NE(words.find("npu step"), std::string::npos) << words;
  EXPECT_EQ(words.find("npu plan"), std::string::npos) << words;
  // An option may read more, and may read less.
  EXPECT_NE(refused({"numerics.logits", "bf16"}, {"npu analyze"}), "");
  EXPECT_EQ(refused({"numerics.logits", "bf16"}, {"npu analyze", "npu analyze --unfused-head"}), "");
  EXPECT_EQ(refused({"host.shared_gbps", "50"}, {"bench --backend npu"}), "");
  EXPECT_NE(refused({"host.shared_gbps", "50"}, {"bench --backend npu", "bench --backend npu --npu-processor host"}),
            "");
  // Every verb checks that the clock is possible.
  EXPECT_EQ(refused({"clock.max_v", "0.9"}, {"npu plan"}), "");
}

TEST(DeviceKeys, ChangesMayNeedOthers) {
  const VerbUse answers = {"run --backend npu"};
  const std::string words = refused({"host.batch_ops", "8"}, answers);
  EXPECT_NE(words.find("'host.batch_ops' is not read while host.batch_us is 0 (change host.batch_us too)"),
            std::string::npos)
      << words;
  EXPECT_EQ(refused({"host.batch_ops", "8"}, answers, {{"host.batch_us", "3"}}), "");
  // One of several is enough.
  const Override power = {"numerics.smooth_alpha", "0.5"};
  EXPECT_NE(refused(power, answers).find("numerics.smooth_keys and numerics.smooth_values"), std::string::npos);
  EXPECT_EQ(refused(power, answers, {{"numerics.smooth_values", "mean"}}), "");
}

TEST(DeviceKeys, RangesAreChecked) {
  constexpr const char* kHead = "base = \"dart-2048\"\nname = \"x\"\nsummary = \"\"\n";
  EXPECT_NE(
      fault_of(std::string(kHead) + "[issue]\nwidth = 9\n").find("'issue.width' is 9 (it must be between 1 and 8)"),
      std::string::npos);
  EXPECT_NE(fault_of(std::string(kHead) + "[numerics]\nsmooth_keys = \"median\"\n").find("none, mean, minmax"),
            std::string::npos);
  Device device = *load_device("dart-2048");
  EXPECT_TRUE(check_ranges(device));
  device.issue.queue = 257;
  const auto fault = check_ranges(device);
  ASSERT_FALSE(fault);
  EXPECT_NE(fault.error().message().find("'issue.queue' is 257"), std::string::npos);
}

}  // namespace
}  // namespace dllm::npu
