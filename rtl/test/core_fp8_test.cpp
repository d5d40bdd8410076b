#include <gtest/gtest.h>

#include "test/core.h"

namespace dllm::rtl {
namespace {

TEST(RtlFp8Core, ProgramsWithIdealMemory) {
  const CoreResult result = check_core(core_fp8(), 40000, 41, {});
  expect_equal(result);
  expect_all_executed(core_fp8(), result);
}

TEST(RtlFp8Core, ProgramsWithSlowMemory) {
  expect_equal(check_core(core_fp8(), 10000, 42, {.latency = 60, .stall = 3}));
}

// The machine accepts this one: heads side by side whose slices are narrower than HLEN need a bank twice in a cycle.
TEST(RtlFp8Core, NarrowSlicesSideBySideTrap) {
  constexpr int kOrder = 6;  // of rtl/traps.svh
  const CoreTraps traps = core_traps(core_fp8(),
                                     "li gp6, 1\nC_SET_CSR gp6, bmm_layout\nC_SET_CSR gp6, bmm_group\nli gp6, 4\n"
                                     "C_SET_CSR gp6, bmm_cols\nM_BMM 0, gp1, gp2");
  EXPECT_EQ(traps.core, kOrder);
  EXPECT_FALSE(traps.machine);
}

}  // namespace
}  // namespace dllm::rtl
