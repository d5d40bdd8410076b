#include "test/core.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace dllm::rtl {
namespace {

struct Narrow {
  CoreModel (*model)();
  const char* name;
};

class RtlCore : public ::testing::TestWithParam<Narrow> {};
INSTANTIATE_TEST_SUITE_P(Models, RtlCore, ::testing::Values(Narrow{core8, "A8W4"}, Narrow{core16, "Fp6"}),
                         [](const auto& narrow) { return narrow.param.name; });

TEST_P(RtlCore, ProgramsWithIdealMemory) {
  const CoreModel model = GetParam().model();
  const CoreResult result = check_core(model, 80000, 41, {});
  expect_equal(result);
  expect_all_executed(model, result);
}

TEST_P(RtlCore, ProgramsWithSlowMemory) {
  expect_equal(check_core(GetParam().model(), 20000, 42, {.latency = 60, .stall = 3}));
}

/// Memory answers as the device's DRAM does. Rows of few bytes, which the core moves one per cycle and the simulator
/// all at once.
TEST(RtlCore8, TransfersWithDram) {
  const CoreResult result = check_core(core8(), 4000, 43, {.dram = true});
  expect_equal(result);
  const PartCycles& transfers = result.parts[static_cast<std::size_t>(Part::kTransfer)];
  ASSERT_GT(transfers.instructions, 30u);
  const double more =
      static_cast<double>(transfers.core - transfers.simulator) / static_cast<double>(transfers.instructions);
  std::printf("%llu transfers, %lld cycles, simulator %lld: %.1f more each\n",
              static_cast<unsigned long long>(transfers.instructions), static_cast<long long>(transfers.core),
              static_cast<long long>(transfers.simulator), more);
  EXPECT_GT(more, 0);
  // Measured: 15.2; 8.4 and 11.9 with other random programs. No clock decides it, but the lengths of the transfers do,
  // and another compiler, which evaluates arguments in another order, makes other programs.
  EXPECT_LT(more, 20);
}

// Values of rtl/traps.svh.
constexpr int kNone = 0, kRow = 2, kWord = 3, kValue = 7;

struct Wrong {
  const char* text;
  int trap;
};

/// Addresses that are not those of a slice or row, that reach beyond a memory, and registers' values out of range. The
/// program continues with gp1 and gp2 = 0.
const Wrong kWrong[] = {
    {"li gp1, 4\nM_MM 0, gp1, gp2", kNone},
    {"li gp1, 2\nM_MM 0, gp1, gp2", kWord},
    {"li gp1, 12\nM_MM 0, gp1, gp2", kWord},
    {"li gp1, 128\nM_MM 0, gp1, gp2", kWord},
    {"li gp2, 4\nM_MM 0, gp1, gp2", kRow},
    {"li gp2, 4064\nM_MM 0, gp1, gp2", kNone},
    {"li gp2, 4072\nM_MM 0, gp1, gp2", kRow},
    {"li gp2, 4\nM_TMM 0, gp1, gp2", kWord},
    {"li gp2, 32\nM_TMM 0, gp1, gp2", kNone},
    {"li gp2, 4088\nM_MV 0, gp1, gp2", kNone},
    {"li gp1, 4\nM_TMV 0, gp1, gp2", kNone},
    {"li gp2, 4096\nM_MV 0, gp1, gp2", kRow},
    {"li gp1, 32\nM_BMM 0, gp1, gp2", kNone},
    {"li gp1, 8\nli gp6, 1\nC_SET_CSR gp6, bmm_group\nM_BMM 0, gp1, gp2", kWord},
    {"li gp1, 32\nM_BTMM 0, gp1, gp2", kWord},
    {"li gp6, 4\nC_SET_CSR gp6, bmm_cols\nli gp1, 36\nM_BTMM 0, gp1, gp2", kNone},
    {"li gp6, 4\nC_SET_CSR gp6, bmm_cols\nli gp1, 34\nM_BTMM 0, gp1, gp2", kWord},
    {"li gp6, 1\nC_SET_CSR gp6, bmm_layout\nC_SET_CSR gp6, bmm_group\nM_BMM 0, gp1, gp2", kWord},
    {"li gp4, 1\nM_MM_WO gp4, gp0, 0", kRow},
    {"li gp4, 4068\nM_MM_WO gp4, gp0, 0", kNone},
    {"li gp4, 4076\nM_MM_WO gp4, gp0, 0", kRow},
    {"li gp4, 4\nli gp5, 170\nM_MM_WO gp4, gp5, 0", kNone},
    {"li gp4, 16\nli gp5, 170\nM_MM_WO gp4, gp5, 0", kRow},
    {"li gp4, 4\nM_BMM_WO gp4, 0", kRow},
    {"li gp4, 3968\nM_BMM_WO gp4, 0", kNone},
    {"li gp4, 3976\nM_BMM_WO gp4, 0", kRow},
    {"li gp6, 4\nC_SET_CSR gp6, bmm_head_stride\nM_BMM_WO gp0, 0", kRow},
    {"li gp6, 6\nC_SET_CSR gp6, bmm_rows", kValue},
    {"li gp6, 12\nC_SET_CSR gp6, bmm_cols", kValue},
    {"li gp6, 0\nC_SET_CSR gp6, bmm_group", kValue},
    {"li gp6, 2\nC_SET_CSR gp6, bmm_layout", kValue},
    {"li gp6, 5\nC_SET_CSR gp6, mm_rows", kValue},
    {"li gp6, 2\nC_SET_CSR gp6, bmm_head_stride", kValue},
    {"li gp6, 0\nC_SET_CSR gp6, store_v_rows", kValue},
    {"li gp6, 2000\nC_SET_CSR gp6, format_weight", kValue},
    {"li gp1, 8\nH_PREFETCH_M gp1, gp2, a1, 0, 0", kRow},
    {"li gp2, 4\nH_PREFETCH_M gp1, gp2, a1, 0, 0", kWord},
    {"li gp4, 4\nC_SET_STRIDE_REG gp4\nH_PREFETCH_M gp1, gp2, a1, 1, 0", kWord},
    {"li gp1, 4064\nH_PREFETCH_V gp1, gp2, a1, 0, 0", kNone},
    {"li gp1, 4072\nH_PREFETCH_V gp1, gp2, a1, 0, 0", kRow},
    {"li gp1, 4\nH_STORE_V gp1, gp2, a2, 0, 0", kRow},
    {"li gp2, 16352\nH_STORE_V gp1, gp2, a2, 0, 1", kNone},
    {"li gp2, 16353\nH_STORE_V gp1, gp2, a2, 0, 1", kWord},
    {"li gp2, 32736\nH_STORE_V gp1, gp2, a2, 0, 0", kNone},
    {"li gp2, 32744\nH_STORE_V gp1, gp2, a2, 0, 0", kWord},
    {"li gp4, 32764\nC_SET_SCALE_REG gp4\nH_PREFETCH_V gp1, gp2, a2, 0, 0", kNone},
    {"li gp4, 32765\nC_SET_SCALE_REG gp4\nH_PREFETCH_V gp1, gp2, a2, 0, 0", kWord},
    {"li gp4, 0x40000000\nli gp5, 2\nC_SET_ADDR_REG a3, gp5, gp4\nH_PREFETCH_V gp1, gp2, a3, 0, 0", kWord},
};

TEST(RtlCoreTraps, AddressesAndRegisters) {
  for (const Wrong& wrong : kWrong) {
    const CoreTraps traps = core_traps(core8(), wrong.text);
    EXPECT_EQ(traps.core, wrong.trap) << wrong.text;
    EXPECT_EQ(traps.machine, wrong.trap != kNone) << wrong.text;
    EXPECT_EQ(traps.difference, "") << wrong.text;
  }
}

// Formats are parameters of the hardware; the machine has all of them.
TEST(RtlCoreTraps, FormatsOfOtherHardware) {
  constexpr char kBf16[] = "li gp6, 7\nC_SET_CSR gp6, ";
  for (const char* name : {"format_weight", "format_matrix_kv", "format_matrix_input"}) {
    const CoreTraps traps = core_traps(core8(), std::string(kBf16) + name);
    EXPECT_EQ(traps.core, kValue) << name;
    EXPECT_FALSE(traps.machine) << name;
  }
  // Those of vectors in memory: BF16 is what the lanes have.
  for (const char* name : {"format_vector_kv", "format_activation"})
    EXPECT_EQ(core_traps(core8(), std::string(kBf16) + name).core, kNone) << name;
  EXPECT_EQ(core_traps(core8(), "li gp6, 0x30\nC_SET_CSR gp6, format_activation").core, kValue);
}

/// Products and write-outs that do not fit the partial sums before them.
TEST(RtlCoreTraps, SumsOfOtherShapes) {
  const Wrong wrong[] = {{"M_MM 0, gp1, gp2\nli gp6, 2\nC_SET_CSR gp6, mm_rows\nM_MM 0, gp1, gp2", kValue},
                         {"M_MM 0, gp1, gp2\nli gp6, 2\nC_SET_CSR gp6, mm_rows\nM_MM_WO gp1, gp0, 0", kValue},
                         {"M_MM 0, gp1, gp2\nM_MM_WO gp1, gp0, 0\nli gp6, 2\nC_SET_CSR gp6, mm_rows\n"
                          "M_MM 0, gp1, gp2",
                          kNone},
                         {"M_BTMM 0, gp1, gp2\nli gp6, 4\nC_SET_CSR gp6, bmm_cols\nM_BMM_WO gp1, 0", kValue},
                         {"M_BTMM 0, gp1, gp2\nli gp6, 4\nC_SET_CSR gp6, bmm_rows\nM_BTMM 0, gp1, gp2", kValue}};
  for (const Wrong& w : wrong) {
    const CoreTraps traps = core_traps(core8(), w.text);
    EXPECT_EQ(traps.core, w.trap) << w.text;
    EXPECT_EQ(traps.machine, w.trap != kNone) << w.text;
    EXPECT_EQ(traps.difference, "") << w.text;
  }
  // Rows, and sums, in the other format of matrices.
  for (const char* first : {"", "M_MM 0, gp1, gp2\n"}) {
    const std::string rows = *first == 0 ? "4" : "8";
    const std::string text = first + ("li gp7, " + rows) + "\nC_SET_CSR gp7, prefetch_m_rows\n" +
                             "H_PREFETCH_M gp1, gp2, a1, 0, 1\nM_MM 0, gp1, gp2";
    const CoreTraps traps = core_traps(core8(), text);
    EXPECT_EQ(traps.core, kValue) << text;
    EXPECT_TRUE(traps.machine) << text;
    EXPECT_EQ(traps.difference, "") << text;
  }
  // 4,095 products of 8 terms fit below 2^15, one more does not.
  for (const int count : {4095, 4096}) {
    const CoreTraps traps =
        core_traps(core8(), "C_LOOP_START gp6, " + std::to_string(count) + "\nM_MM 0, gp1, gp2\nC_LOOP_END gp6");
    EXPECT_EQ(traps.core, count == 4095 ? kNone : kValue) << count;
    EXPECT_EQ(traps.machine, count != 4095) << count;
    EXPECT_EQ(traps.difference, "") << count;
  }
}

TEST(RtlCoreTraps, RowsThatWereNeverLoaded) {
  const CoreTraps traps = core_traps(core8(), "M_MM 0, gp0, gp0", false);
  EXPECT_EQ(traps.core, kWord);
  EXPECT_TRUE(traps.machine);
}

}  // namespace
}  // namespace dllm::rtl
