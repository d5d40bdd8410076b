// What programs of models seldom do: heads of their own slices, partial sums of other shapes, ends of memories.

#include <string>
#include <vector>

#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab, test::set;

/// A tile of BF16 whose rows have 1 in the first head's lanes and 2 in the second's, times rows of ones.
std::string two_heads(Lab& lab) {
  std::vector<float> tile;
  for (int i = 0; i < 256; ++i) tile.push_back(i % 16 < 8 ? 1.0f : 2.0f);
  lab.put_tensor(0, {MxElement::kBF16, MxRule::kOcp, 1}, tile);
  for (std::uint64_t row = 0; row < 16; ++row) lab.set_row(row * 32, std::vector<float>(16, 1.0f));
  return "C_SET_ADDR_REG a0, gp0, gp0\nH_PREFETCH_M gp0, gp0, a0, 0, 1\n";
}

Lab bf16_lab() {
  MachineConfig config = Lab::small();
  config.matrix_kv = {MxElement::kBF16, MxRule::kOcp, 1};
  return Lab(config);
}

TEST(MachineEdges, HeadsOfFloatsHaveTheirOwnSlices) {
  for (const std::uint32_t group : {1u, 2u}) {
    Lab lab = bf16_lab();
    lab.run(two_heads(lab) + set("gp1", 1024) + set("gp2", group) +
            "C_SET_CSR gp2, bmm_group\nM_BTMM 0, gp0, gp0\nM_BMM_WO gp1, 0\n");
    EXPECT_EQ(lab.row(1024, 16), std::vector<float>(16, 8.0f));
    EXPECT_EQ(lab.row(1024 + 16 * 32, 16), std::vector<float>(16, group == 1 ? 16.0f : 8.0f));
  }
}

TEST(MachineEdges, PartialSumsKeepTheirShape) {
  for (const char* shape : {"bmm_rows", "bmm_cols"}) {
    Lab lab = bf16_lab();
    const std::string load = two_heads(lab) + set("gp2", 8);
    EXPECT_EQ(lab.trap(load + "M_BTMM 0, gp0, gp0\nM_BTMM 0, gp0, gp0\n"), "");
    EXPECT_NE(lab.trap(load + "M_BTMM 0, gp0, gp0\nC_SET_CSR gp2, " + shape + "\nM_BTMM 0, gp0, gp0\n"), "") << shape;
  }
}

/// 256 rows of vector SRAM; a write-out of two heads takes 32 of them.
TEST(MachineEdges, EveryHeadEndsWithinTheMemory) {
  for (const std::uint32_t row : {224u, 225u, 240u}) {
    Lab lab = bf16_lab();
    const std::string words = lab.trap(two_heads(lab) + set("gp1", row * 32) + "M_BTMM 0, gp0, gp0\nM_BMM_WO gp1, 0\n");
    EXPECT_EQ(words.empty(), row == 224u) << row << " " << words;
  }
}

TEST(MachineEdges, MasksHaveTwoZeros) {
  Lab lab(Lab::small());
  std::vector<float> mask(32, 1.0f);
  mask[1] = -0.0f, mask[2] = 0.0f;
  lab.set_row(96, {0.5f, 0.9f, 0.9f, 0.1f});
  lab.set_row(128, mask);
  lab.run(set("gp1", 96) + set("gp2", 128) + set("gp3", 160) + set("gp4", 3) + set("gp5", 4) +
          "V_TOPK_MASK gp3, gp1, gp2, gp4, gp5");
  const std::vector<float> top = lab.row(160, 4);
  EXPECT_TRUE(top[0] != 0 && top[3] != 0);
  EXPECT_EQ(top[1], 0.0f);
  EXPECT_EQ(top[2], 0.0f);
}

TEST(MachineEdges, AddressRegistersHave64Bits) {
  Lab lab(Lab::small());
  lab.run(set("gp1", 0x80000003) + set("gp2", 0xfffffff5) + "C_SET_ADDR_REG a1, gp1, gp2\n");
  EXPECT_EQ(lab.state().address[1], 0x80000003fffffff5u);
}

}  // namespace
}  // namespace dllm::npu
