// mm_rows: blocks of rows that are not full.

#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab, test::set;

TEST(MatrixRows, OnlyTheseAreReadAndWritten) {
  Lab lab(Lab::small());
  std::vector<float> w(256, 0.0f);
  for (std::size_t i = 0; i < 16; ++i) w[i * 17] = 1.0f;  // identity
  const std::uint32_t scale = lab.put_tensor(0, {MxElement::kInt8, MxRule::kOcp, 8}, w);
  for (int row = 0; row < 4; ++row)
    lab.set_row(static_cast<std::uint64_t>(row) * 32, std::vector<float>(16, static_cast<float>(row + 1)));
  lab.set_row(1024 + 3 * 32, std::vector<float>(4, 9.0f));
  lab.run(set("gp15", scale) + "C_SET_SCALE_REG gp15\nC_SET_ADDR_REG a0, gp0, gp0\nH_PREFETCH_M gp0, gp0, a0, 0, 0\n" +
          set("gp1", 1024) + set("gp2", 3) + "C_SET_CSR gp2, mm_rows\nM_TMM 0, gp0, gp0\nM_MM_WO gp1, 0, 0\n");
  for (std::size_t row = 0; row < 4; ++row)
    EXPECT_EQ(lab.row(1024 + row * 32, 4), std::vector<float>(4, row < 3 ? static_cast<float>(row + 1) : 9.0f));
  for (const std::uint32_t wrong : {0u, 5u})
    EXPECT_NE(lab.trap(set("gp2", wrong) + "C_SET_CSR gp2, mm_rows").find("not in 1..4"), std::string::npos);
  EXPECT_NE(
      lab.trap(set("gp2", 2) + "M_MM 0, gp0, gp0\nC_SET_CSR gp2, mm_rows\nM_MM_WO gp1, 0, 0").find("write-out is"),
      std::string::npos);
}

}  // namespace
}  // namespace dllm::npu
