#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "npu_core/assembler/assembler.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/ports.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

Program program_of(const std::string& source) {
  auto program = assemble(source, {.file = "test.asm"});
  EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message());
  return program ? *std::move(program) : Program{};
}

std::string testdata(const std::string& name) {
  std::ifstream file(std::string(DLLM_SOURCE_DIR) + "/src/npu_core/testdata/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Timing : public ::testing::Test {
 protected:
  explicit Timing(const std::string& device = "plena-64") : device_(*load_device(device)) {
    machine_ = *machine_config(device_);
  }

  TimingReport run(const Program& program, const TimingOptions& options = {}) {
    const auto report = simulate(device_, machine_, program, options);
    EXPECT_TRUE(report.has_value()) << (report ? "" : report.error().message());
    if (!report) return {};
    check_sums(*report);
    return *report;
  }
  TimingReport run(const std::string& source, const TimingOptions& options = {}) {
    return run(program_of(source), options);
  }
  Cycle cycles(const std::string& source, const TimingOptions& options = {}) { return run(source, options).total; }

  /// Every cycle of every engine has one cause, and every cycle of the program belongs to one region.
  static void check_sums(const TimingReport& report) {
    for (const EngineTime& engine : report.engines) EXPECT_EQ(engine.total(), report.total);
    Cycle regions = 0;
    for (const RegionTiming& region : report.regions) regions += region.cycles;
    EXPECT_EQ(regions, report.total);
  }

  Device device_;
  MachineConfig machine_;
};

TimingOptions serial() {
  TimingOptions options;
  options.issue = IssueMode::kSerial;
  return options;
}

TEST_F(Timing, SerialIsTheSumOfLatencies) {
  const TimingReport report =
      run("V_ADD_VV gp0, gp0, gp0, 0\nV_EXP_V gp0, gp0, 0\nV_RED_SUM f1, gp0, 0\n"
          "S_RECI_FP f1, f1\nS_ADDI_INT gp1, gp1, 5\nC_SET_SCALE_REG gp1\nM_MM 0, gp0, gp0\n",
          serial());
  EXPECT_EQ(report.classes.vector, 2 + 1 + 8);
  EXPECT_EQ(report.classes.scalar, 1 + 1);
  EXPECT_EQ(report.classes.control, 1);
  EXPECT_EQ(report.classes.matrix, 4);
  EXPECT_EQ(report.total, report.classes.sum());
  TimingOptions mlen = serial();
  mlen.compat_mlen = true;
  EXPECT_EQ(run("M_MM 0, gp0, gp0\n", mlen).total, 64);
}

TEST(RunCalendar, TakesTheCyclesOfACalendarOfOnePort) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) { return static_cast<Cycle>(random() % n); };
  for (std::uint32_t trial = 0; trial < 50; ++trial) {
    PortCalendar cycles(1);
    RunCalendar runs;
    Cycle now = 0;
    for (int i = 0; i < 2000; ++i) {
      now += below(1 + trial);  // from crowded to sparse
      const Cycle from = std::max<Cycle>(0, now + below(200) - 100);
      const auto count = below(30);
      ASSERT_EQ(runs.take_run(from, count), cycles.take_run(from, count)) << trial << " " << i;
    }
  }
}

/// Vector code unpacks weights at its own rate, and the array waits for it as for memory.
TEST(PackedTransfers, TakeTheLookUpsTime) {
  const std::string source =
      "li gp1, 2048\nC_SET_CSR gp1, prefetch_m_rows\nH_PREFETCH_M gp0, gp0, a0, 0, 0\n"
      ".rep 64, i\nli gp2, \\i * 1024\nM_TMM 0, gp0, gp2\n.endr\n";
  const auto total = [&](const char* rate, const char* format) {
    const Device device = *load_device("mobile-v79", {{"host.dequantize_gbps", rate}, {"numerics.weight", format}});
    const TimingReport report = *simulate(device, *machine_config(device), program_of(source), {});
    EXPECT_EQ(report.read_bytes, format == std::string_view("q4_0") ? 64 * 576u : 64 * 1088u);
    return static_cast<double>(report.total);
  };
  const double unpacked_bytes = 64 * 576, ghz = 2.114;
  const double fast = total("0", "q4_0"), published = total("26", "q4_0"), slow = total("13", "q4_0");
  EXPECT_LT(fast, published);
  EXPECT_GT(published, unpacked_bytes / 26 * ghz);
  EXPECT_NEAR(slow - published, unpacked_bytes / 26 * ghz, 50);
  EXPECT_NEAR(total("13", "q8_0") - slow, 64 * 512 / 13.0 * ghz, 50);
}

TEST_F(Timing, FrontEndDispatchesInOrderTwoPerCycle) {
  EXPECT_EQ(cycles("C_SET_SCALE_REG gp0\nC_SET_SCALE_REG gp0\nC_SET_SCALE_REG gp0\nC_SET_SCALE_REG gp0\n"), 2);
  // One integer unit, and an operand is available a cycle later.
  EXPECT_EQ(cycles("S_ADDI_INT gp1, gp0, 1\nS_ADDI_INT gp2, gp0, 1\nS_ADDI_INT gp3, gp0, 1\n"), 3);
  EXPECT_EQ(cycles("S_ADDI_INT gp1, gp0, 1\nC_SET_SCALE_REG gp1\n"), 2);
  TimingOptions one;
  one.width = 1;
  EXPECT_EQ(cycles("C_SET_SCALE_REG gp0\nC_SET_SCALE_REG gp0\nC_SET_SCALE_REG gp0\n", one), 3);
}

TEST_F(Timing, VectorPipesTakeARowPerCycle) {
  // 64 independent rows through one pipe: a row per cycle, then the latency of 2 and the write.
  std::string source = "li gp1, 0\nli gp2, 8192\n";
  for (int i = 0; i < 64; ++i) source += "V_ADD_VF gp2, gp1, f1, 0\nS_ADDI_INT gp2, gp2, 64\n";
  const TimingReport report = run(source);
  EXPECT_EQ(report.engines[index_of(Engine::kVector)].busy, 64);
  EXPECT_LE(report.total, 64 + 8);
}

TEST_F(Timing, ChainedResultsSkipTheSram) {
  // In place: subtract (2), exponential (1), sum (8): the results meet in the latches.
  const std::string chain =
      "V_SUB_VF gp0, gp0, f1, 0, 0\nV_EXP_V gp0, gp0, 0\nV_RED_SUM f2, gp0, 0\nS_RECI_FP f3, f2\n";
  const TimingReport chained = run(chain);
  EXPECT_EQ(chained.chained_reads, 2u);
  EXPECT_EQ(chained.total, 2 + 1 + 8 + 1);
  TimingOptions without;
  without.chaining = false;
  const TimingReport plain = run(chain, without);
  EXPECT_EQ(plain.chained_reads, 0u);
  EXPECT_EQ(plain.total, 12 + 2);  // two more reads, each a cycle after the write
}

TEST_F(Timing, ReductionsAccumulateEveryCycle) {
  std::string source;
  for (int i = 0; i < 16; ++i) source += "V_RED_SUM f1, gp0, 0\n";
  EXPECT_EQ(run(source).total, 15 + 8);
}

TEST_F(Timing, RegistersAreOrdered) {
  // The scalar unit must not overwrite f1 before the vector unit has read it, and waits for the sum.
  const TimingReport report = run("V_RED_SUM f1, gp0, 0\nS_MV_FP f2, f1\n");
  EXPECT_EQ(report.total, 8 + 1);
  EXPECT_EQ(report.engines[index_of(Engine::kScalar)].stall[index_of(Cause::kVector)], 8);
}

TEST_F(Timing, MatrixStreamsTilesAndDrainsBehind) {
  // 8 sums of 4 tiles each: BLEN = 4 cycles per tile, write-outs in the shadow of the next sum.
  std::string source = "li gp2, 65536\n";
  for (int i = 0; i < 8; ++i)
    source += "M_MM 0, gp0, gp0\nM_MM 0, gp0, gp0\nM_MM 0, gp0, gp0\nM_MM 0, gp0, gp0\nM_MM_WO gp2, 0, 0\n";
  const TimingReport report = run(source);
  const Cycle fill = 2 * 4 - 2 + 4 + 2;
  EXPECT_EQ(report.engines[index_of(Engine::kMatrix)].busy, 8 * 4 * 4);
  EXPECT_LE(report.total, 8 * 16 + fill + 4 + 4);
  TimingOptions single;
  single.accumulators = 1;
  EXPECT_GE(run(source, single).total, 8 * (16 + 4));  // without a second buffer the write-out adds BLEN
}

TEST_F(Timing, LoadsRunBesideComputationAndAreAwaited) {
  const std::string load = "li gp1, 65536\nH_PREFETCH_V gp1, gp0, a0, 0, 0\n";
  std::string work;
  for (int i = 0; i < 200; ++i) work += "V_EXP_V gp0, gp0, 0\n";
  const Cycle alone = cycles(load), compute = cycles(work), both = cycles(load + work);
  EXPECT_GT(alone, 30);
  EXPECT_LT(both, alone + compute - 20);
  // The first access to the rows waits for them before dispatch.
  const TimingReport used = run(load + "V_EXP_V gp1, gp1, 0\n");
  EXPECT_GE(used.total, alone);
  EXPECT_GT(used.engines[index_of(Engine::kFrontEnd)].stall[index_of(Cause::kMemory)], 20);
  // So does a fence.
  const TimingReport fenced = run("H_PREFETCH_V gp0, gp0, a0, 0, 0, 1\nC_FENCE 1\n");
  EXPECT_GT(fenced.engines[index_of(Engine::kFrontEnd)].stall[index_of(Cause::kFence)], 20);
  TimingOptions blocking;
  blocking.asynchronous = false;
  EXPECT_GE(cycles(load + work, blocking), alone + compute - 4);
}

TEST_F(Timing, LoadsWaitForStoresOfTheSameBytes) {
  const std::string store = "H_STORE_V gp0, gp0, a0, 0, 0\n";
  const Cycle apart = cycles(store + "li gp1, 65536\nli gp2, 65536\nH_PREFETCH_V gp1, gp2, a0, 0, 0\n");
  const Cycle same = cycles(store + "li gp1, 65536\nli gp2, 0\nH_PREFETCH_V gp1, gp2, a0, 0, 0\n");
  EXPECT_GT(same, apart);
}

TEST_F(Timing, LoopsEqualUnrolledText) {
  const std::string body = "V_EXP_V gp1, gp1, 0\nS_ADDI_INT gp1, gp1, 64\n";
  std::string unrolled;
  for (int i = 0; i < 100; ++i) unrolled += body;
  const TimingReport loop = run(".loop gp2, 100\n" + body + ".endloop\n", serial());
  EXPECT_EQ(loop.total, run(unrolled, serial()).total);
}

/// The programs of testdata: overlapped is never slower than serial, and every cycle is attributed.
TEST_F(Timing, Programs) {
  for (const char* name : {"gemm.asm", "rmsnorm.asm", "silu.asm", "rope.asm", "flash_attention.asm", "sampling.asm"}) {
    SCOPED_TRACE(name);
    const Program program = program_of(testdata(name));
    const TimingReport slow = run(program, serial()), fast = run(program);
    EXPECT_LT(fast.total, slow.total);
    EXPECT_EQ(fast.instructions, slow.instructions);
    EXPECT_EQ(fast.read_bytes, slow.read_bytes);
    const TimingReport again = run(program);
    EXPECT_EQ(again.total, fast.total);
    for (std::size_t e = 0; e < kEngines; ++e) EXPECT_EQ(again.engines[e].busy, fast.engines[e].busy);
  }
}

}  // namespace
}  // namespace dllm::npu
