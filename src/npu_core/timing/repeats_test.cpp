#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/testing/fuzz_replay.h"
#include "npu_core/assembler/assembler.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/memo.h"
#include "npu_core/timing/testing/fuzz_entry.h"

namespace dllm::npu {
namespace {

/// Layers of two regions: a product whose tiles are prefetched, and vector work on its result. Addresses differ from
/// layer to layer, some by one instruction more.
std::string layers(int count, int odd_one = -1) {
  std::string text = ".profile begin\nli gp9, 65536\nH_PREFETCH_V gp9, gp0, a0, 0, 0\nC_FENCE 0\n.endprofile\n";
  for (int l = 0; l < count; ++l) {
    const std::string blk = "blk." + std::to_string(l);
    text += ".profile " + blk + ".product\n  li gp1, " + std::to_string(l << 21) + "\n  C_SET_ADDR_REG a1, gp0, gp1\n";
    text += "  li gp2, 0\n  li gp3, 0\n  li gp6, 131072\n";
    text += "  .loop gp4, 256\n    H_PREFETCH_M gp2, gp3, a1, 0, 0\n    S_ADDI_INT gp3, gp3, 4096\n";
    text += "    M_MM 0, gp2, gp9\n    M_MM 0, gp2, gp9\n    M_MM_WO gp6, 0, 0\n    S_ADDI_INT gp2, gp2, 4096\n";
    text += "    S_ADDI_INT gp6, gp6, 4\n  .endloop\n.endprofile\n";
    text += ".profile " + blk + ".act\n  li gp5, 131072\n";
    text += "  .loop gp4, " + std::string(l == odd_one ? "300" : "16") +
            "\n    V_EXP_V gp5, gp5, 0\n    V_MUL_VV gp5, gp5, gp5, 0\n";
    text += "    S_ADDI_INT gp5, gp5, 64\n  .endloop\n.endprofile\n";
  }
  return text + ".profile end\nV_RED_SUM f1, gp9, 0\n.endprofile\n";
}

class Repeats : public ::testing::Test {
 protected:
  Repeats() : device_(*load_device("plena-64", {{"memory.refresh", "none"}})), machine_(*machine_config(device_)) {}

  static Program program(const std::string& text) {
    auto program = assemble(text, {.file = "test.asm"});
    EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message());
    return program ? *std::move(program) : Program{};
  }
  TimingReport run(const Program& program, bool repeat) const {
    TimingOptions options;
    options.repeat = repeat;
    const auto report = simulate(device_, machine_, program, options);
    EXPECT_TRUE(report.has_value()) << (report ? "" : report.error().message());
    return report ? *report : TimingReport{};
  }

  Device device_;
  MachineConfig machine_;
};

TEST_F(Repeats, FindsLayers) {
  const PeriodicRegions found = find_periods(program(layers(12)));
  EXPECT_EQ(found.length, 2u);
  EXPECT_EQ(found.first, 1u);
  EXPECT_EQ(found.begins.size(), 12u);
  // A layer that does something else ends the run.
  EXPECT_EQ(find_periods(program(layers(12, 5))).begins.size(), 6u);
  EXPECT_TRUE(find_periods(program(layers(3))).begins.empty());
  // Words of spilled integers rotate, and addresses beyond 4 GiB have an upper half.
  std::string text = layers(12);
  for (int l = 0; l < 12; ++l) {
    const std::size_t at = text.find("C_SET_ADDR_REG", text.find("blk." + std::to_string(l) + ".product"));
    text.insert(at, fmt::format("S_ST_INT gp1, gp0, {0}\n S_LD_INT gp7, gp0, {0}\n ", 65500 + l % 5));
    if (l > 7) text.replace(text.find("a1, gp0", at), 7, "a1, gp7");
  }
  EXPECT_EQ(find_periods(program(text)).begins.size(), 12u);
}

/// Skipping layers in the middle changes all parts of the report by less than the tolerance.
TEST_F(Repeats, EqualsTheWholeSimulation) {
  const Program layered = program(layers(24));
  const TimingReport all = run(layered, false), some = run(layered, true);
  EXPECT_EQ(all.skipped_periods, 0u);
  EXPECT_GE(some.skipped_periods, 10u);
  EXPECT_EQ(some.instructions, all.instructions);
  EXPECT_EQ(some.read_bytes, all.read_bytes);
  EXPECT_EQ(some.macs, all.macs);
  const auto close = [](Cycle a, Cycle b) {
    return std::abs(static_cast<double>(a - b)) <= 0.01 * static_cast<double>(b) + 8;
  };
  EXPECT_TRUE(close(some.total, all.total)) << some.total << " " << all.total;
  for (std::size_t e = 0; e < kEngines; ++e) {
    EXPECT_EQ(some.engines[e].total(), some.total);
    EXPECT_TRUE(close(some.engines[e].busy, all.engines[e].busy)) << name_of(static_cast<Engine>(e));
  }
  Cycle regions = 0;
  ASSERT_EQ(some.regions.size(), all.regions.size());
  for (std::size_t r = 0; r < some.regions.size(); ++r) {
    regions += some.regions[r].cycles;
    EXPECT_EQ(some.regions[r].instructions, all.regions[r].instructions);
    EXPECT_EQ(some.regions[r].name, all.regions[r].name);
  }
  EXPECT_EQ(regions, some.total);
  for (std::size_t op = 0; op < some.ops.size(); ++op) EXPECT_EQ(some.ops[op].count, all.ops[op].count);
}

/// Refreshes come every 3.9 us: layers of less than a microsecond are all simulated.
TEST_F(Repeats, ShortPeriodsAreNot) {
  device_ = *load_device("plena-64");
  EXPECT_EQ(run(program(layers(12)), true).skipped_periods, 0u);
}

TEST_F(Repeats, ReportsAreKept) {
  const std::filesystem::path directory = std::filesystem::path(::testing::TempDir()) / "npu-timing-memo";
  std::filesystem::remove_all(directory);
  const Program first = program(layers(8)), second = program(layers(8, 2));
  TimingOptions options;
  const auto timed = [&](const Program& p, const TimingOptions& o) {
    const auto result = memoised_timing(device_, machine_, p, o, directory.string());
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
    return *result;
  };
  const MemoisedTiming fresh = timed(first, options), kept = timed(first, options);
  EXPECT_FALSE(fresh.from_cache);
  EXPECT_TRUE(kept.from_cache);
  EXPECT_EQ(kept.report, fresh.report);
  EXPECT_EQ(kept.total, fresh.total);
  // Everything else changes the key.
  EXPECT_FALSE(timed(second, options).from_cache);
  options.width = 1;
  EXPECT_FALSE(timed(first, options).from_cache);
  // A damaged file is ignored.
  options.width = 2;
  const auto path = directory / (timing_key(device_, machine_, first, options) + ".json");
  ASSERT_TRUE(std::filesystem::exists(path));
  std::ofstream(path) << "{\"key\": 3";
  const MemoisedTiming again = timed(first, options);
  EXPECT_FALSE(again.from_cache);
  EXPECT_EQ(again.total, fresh.total);
  EXPECT_TRUE(timed(first, options).from_cache);
  // So are files with changed figures, with or without a matching checksum, and files nested without end.
  std::stringstream whole;
  whole << std::ifstream(path).rdbuf();
  const auto file = nlohmann::ordered_json::parse(whole.str());
  for (const char* change : {"total", "engines", "version", "deep"}) {
    nlohmann::ordered_json other = file;
    if (change == std::string("total")) other["report"]["total_cycles"] = 7;
    if (change == std::string("engines")) other["report"]["engines"] = {{"a", nlohmann::ordered_json::object()}};
    if (change == std::string("version")) other["version"] = 1;
    std::string text = other.dump();
    if (change == std::string("deep")) text = "{\"key\":" + std::string(300000, '[');
    std::ofstream(path) << text;
    const MemoisedTiming repaired = timed(first, options);
    EXPECT_FALSE(repaired.from_cache) << change;
    EXPECT_FALSE(repaired.doubt.empty()) << change;
    EXPECT_EQ(repaired.total, fresh.total) << change;
  }
  std::filesystem::remove_all(directory);
}

TEST(FuzzCorpus, TimingCache) { test::replay_corpus("timing_cache", 50, fuzz_timing_cache); }

}  // namespace
}  // namespace dllm::npu
