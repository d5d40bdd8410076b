// Rules of the timing model one by one: programs that take exactly as long as a rule says.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "npu_core/assembler/assembler.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

TimingReport timed(const std::string& source, const TimingOptions& options = {},
                   const std::vector<Override>& changes = {}, const char* name = "plena-64") {
  const auto program = assemble(source, {.file = "rule.asm"});
  EXPECT_TRUE(program) << (program ? "" : program.error().message());
  if (!program) return {};
  const Device device = *load_device(name, changes);
  const auto report = simulate(device, *machine_config(device), *program, options);
  EXPECT_TRUE(report) << (report ? "" : report.error().message());
  return report ? *report : TimingReport{};
}

std::string repeated(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TimingRules, TheScalarUnitStartsOneOperationPerCycle) {
  const auto total = [](int count) {
    std::string source;
    for (int i = 0; i < count; ++i) source += "S_ADD_FP f" + std::to_string(1 + i % 6) + ", f0, f0\n";
    return timed(source).total;
  };
  EXPECT_EQ(total(20) - total(8), 12);
}

TEST(TimingRules, TakenBranchesCostTheirBubble) {
  const std::string source = "li gp1, 9\nagain: S_ADDI_INT gp2, gp2, 1\nS_SUB_INT gp1, gp1, gp3\nC_BNZ gp1, again\n";
  const auto total = [&](int bubble) {
    TimingOptions options;
    options.branch_bubble = bubble;
    return timed("li gp3, 1\n" + source, options).total;
  };
  EXPECT_EQ(total(2) - total(0), 8 * 2);
  EXPECT_EQ(total(7) - total(2), 8 * 5);
}

// Their accumulator was beyond the end of the simulator's list.
TEST(TimingRules, HeadsOfOneVectorHaveAnAccumulator) {
  const std::string load = "H_PREFETCH_M gp0, gp0, a0, 0, 0\n";
  for (const std::string product : {"M_BMV", "M_BTMV"})
    EXPECT_GT(timed(load + product + " gp0, gp0, gp0\nM_BMV_WO gp0, 0\n").total, timed(load).total) << product;
}

/// Transfers follow each other at the rate of the DMA engines if that is less than the memory's.
TEST(TimingRules, DmaEnginesLimitTheRate) {
  constexpr int kTransfers = 32;
  std::string source = "li gp1, 32\nC_SET_CSR gp1, prefetch_v_rows\n";
  for (int i = 0; i < kTransfers; ++i)
    source += "li gp1, " + std::to_string(2048 * i) + "\nH_PREFETCH_V gp1, gp1, a0, 0, 0\n";
  double before = 0;
  for (const char* rate : {"40", "20", "10"}) {
    const TimingReport report = timed(source, {}, {{"memory.dma_gbps", rate}}, "mobile-v79");
    const double all = static_cast<double>(report.read_bytes) / std::stod(rate) * 2.114,
                 total = static_cast<double>(report.total);
    EXPECT_GE(total, all * (kTransfers - 1) / kTransfers) << rate;
    EXPECT_LE(total, all + 500) << rate;
    EXPECT_GT(total, 1.7 * before);
    before = total;
  }
}

TEST(TimingRules, AFenceOfTagZeroWaitsForAllTransfers) {
  const auto fenced = [](const char* loaded, const char* fence) {
    const TimingReport report = timed("H_PREFETCH_V gp0, gp0, a0, 0, 0, " + std::string(loaded) + "\nC_FENCE " + fence +
                                      "\nS_ADDI_INT gp1, gp0, 1\n");
    return report.engines[index_of(Engine::kFrontEnd)].stall[index_of(Cause::kFence)];
  };
  EXPECT_GT(fenced("1", "0"), 20);
  EXPECT_GT(fenced("1", "1"), 20);
  EXPECT_EQ(fenced("1", "2"), 0);
}

/// Vector code unpacks weights at its rate, whatever it is: fractions of cycles add up.
TEST(TimingRules, UnpackingHasItsRate) {
  const auto total = [](const char* rate, int tiles) {
    return static_cast<double>(
        timed("li gp1, " + std::to_string(32 * tiles) +
                  "\nC_SET_CSR gp1, prefetch_m_rows\nH_PREFETCH_M gp0, gp0, a0, 0, 0\nC_FENCE 0\n",
              {}, {{"host.dequantize_gbps", rate}}, "mobile-v79")
            .total);
  };
  for (const char* rate : {"6", "7", "9", "11", "13", "17", "23"})
    EXPECT_NEAR(total(rate, 64) - total(rate, 16), 48 * 576 / std::stod(rate) * 2.114, 4) << rate;
}

TEST(TimingRules, AsManyTransfersAsAllowedAreInFlight) {
  const auto waits = [](const char* outstanding, int transfers) {
    std::string source;
    for (int i = 0; i < transfers; ++i)
      source += "li gp1, " + std::to_string(1024 * i) + "\nH_PREFETCH_V gp1, gp1, a0, 0, 0\n";
    const TimingReport report = timed(source, {}, {{"prefetch.outstanding", outstanding}});
    return report.engines[index_of(Engine::kFrontEnd)].stall[index_of(Cause::kTransfers)];
  };
  EXPECT_EQ(waits("2", 2), 0);
  EXPECT_GT(waits("2", 3), 0);
  EXPECT_EQ(waits("5", 5), 0);
  EXPECT_GT(waits("5", 6), 0);
}

/// Two pipes start in one cycle, if the front end may start two.
TEST(TimingRules, VectorInstructionsStartAsAllowed) {
  const std::string pairs =
      "li gp1, 4096\nli gp2, 8192\n" + repeated(20, "V_RED_MAX f1, gp1, 0\nV_RED_SUM f2, gp2, 0\n");
  const auto total = [&](int starts) {
    TimingOptions options;
    options.vector_starts = starts;
    return timed(pairs, options, {{"sram.vector_ports", "4"}}).total;
  };
  EXPECT_GE(total(1), total(2) + 15);
}

TEST(TimingRules, TopKTakesACyclePerElement) {
  TimingOptions serial;
  serial.issue = IssueMode::kSerial;
  const auto total = [&](const char* length) {
    return timed("li gp1, 4096\nli gp2, 8192\nli gp3, 2\nli gp4, " + std::string(length) +
                     "\nli gp5, 12288\nV_TOPK_MASK gp5, gp1, gp2, gp3, gp4\n",
                 serial)
        .total;
  };
  EXPECT_EQ(total("48") - total("16"), 32);
}

TEST(TimingRules, HadamardTransformsTakeTheirLevels) {
  TimingOptions serial;
  serial.issue = IssueMode::kSerial;
  const std::string segment = "li gp3, 16\nC_SET_CSR gp3, segment_length\n";
  const auto total = [&](const std::string& source) { return timed(segment + source, serial).total; };
  EXPECT_EQ(total("C_HADAMARD_TRANSFORM gp0, gp0\n") - total(""), 4 + 1);
}

TEST(TimingRules, InstructionsAreWordsOfMemory) {
  EXPECT_EQ(timed(repeated(64, "S_ADDI_INT gp1, gp0, 1\n")).instruction_bytes, 64 * 4u);
}

}  // namespace
}  // namespace dllm::npu
