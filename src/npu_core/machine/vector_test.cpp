#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab;
using test::set;

constexpr std::size_t kLanes = 32;

/// Rows at 32 (a), 64 (b); results at 96; f1 = 1.5.
class Vectors : public testing::Test {
 protected:
  Vectors() {
    a_ = test::normals(kLanes, 1, 3.0f);
    b_ = test::normals(kLanes, 2);
    lab_.set_row(32, a_);
    lab_.set_row(64, b_);
  }
  std::vector<float> result(const std::string& instruction) {
    lab_.run(set("gp1", 32) + set("gp2", 64) + set("gp3", 96) + "S_LI_FP f1, 1.5\n" + instruction);
    return lab_.row(96, kLanes);
  }
  template <class F>
  void expect_lanes(const std::string& instruction, F f) {
    const auto out = result(instruction);
    for (std::size_t i = 0; i < kLanes; ++i)
      EXPECT_EQ(out[i], test::bf16_round(static_cast<double>(f(i)))) << instruction << " lane " << i;
  }

  Lab lab_{Lab::small()};
  std::vector<float> a_, b_;
};

TEST_F(Vectors, Elementwise) {
  expect_lanes("V_ADD_VV gp3, gp1, gp2", [&](std::size_t i) { return a_[i] + b_[i]; });
  expect_lanes("V_SUB_VV gp3, gp1, gp2, 0", [&](std::size_t i) { return a_[i] - b_[i]; });
  expect_lanes("V_MUL_VV gp3, gp1, gp2", [&](std::size_t i) { return a_[i] * b_[i]; });
  expect_lanes("V_ADD_VF gp3, gp1, f1", [&](std::size_t i) { return a_[i] + 1.5f; });
  expect_lanes("V_SUB_VF gp3, gp1, f1, 0, 0", [&](std::size_t i) { return a_[i] - 1.5f; });
  expect_lanes("V_SUB_VF gp3, gp1, f1, 0, 1", [&](std::size_t i) { return 1.5f - a_[i]; });
  expect_lanes("V_MUL_VF gp3, gp1, f1", [&](std::size_t i) { return a_[i] * 1.5f; });
  expect_lanes("V_MAX_VF gp3, gp1, f1", [&](std::size_t i) { return std::max(a_[i], 1.5f); });
  expect_lanes("V_MIN_VF gp3, gp1, f1", [&](std::size_t i) { return std::min(a_[i], 1.5f); });
  expect_lanes("V_MAX_VV gp3, gp1, gp2", [&](std::size_t i) { return std::max(a_[i], b_[i]); });
  expect_lanes("V_MIN_VV gp3, gp1, gp2", [&](std::size_t i) { return std::min(a_[i], b_[i]); });
  expect_lanes("V_EXP_V gp3, gp1", [&](std::size_t i) { return std::exp(static_cast<double>(a_[i])); });
  expect_lanes("V_RECI_V gp3, gp1, 0", [&](std::size_t i) { return 1.0 / static_cast<double>(a_[i]); });
  expect_lanes("V_MUL_VV gp3, gp1, gp1\nV_SQRT_V gp3, gp3", [&](std::size_t i) {
    return std::sqrt(static_cast<double>(test::bf16_round(static_cast<double>(a_[i] * a_[i]))));
  });
}

TEST_F(Vectors, MaskedLanesKeepTheFirstSource) {
  // HLEN 8: bits 0 and 2 enable lanes 0-7 and 16-23.
  const auto out = result(set("gp4", 5) + "C_SET_V_MASK_REG gp4\nV_MUL_VF gp3, gp1, f1, 1");
  for (std::size_t i = 0; i < kLanes; ++i)
    EXPECT_EQ(out[i], i / 8 % 2 == 0 ? test::bf16_round(static_cast<double>(a_[i] * 1.5f)) : a_[i]);
  EXPECT_EQ(result("V_EXP_V gp3, gp1, 1")[8], a_[8]) << "not even clamped";
}

TEST_F(Vectors, InPlace) {
  lab_.run(set("gp1", 32) + set("gp2", 64) + "V_ADD_VV gp1, gp1, gp2\nV_SUB_VV gp2, gp1, gp2");
  EXPECT_EQ(lab_.row(32, 1)[0], test::bf16_round(static_cast<double>(a_[0] + b_[0])));
}

float tree(std::vector<float> values) {
  while (values.size() > 1) {
    std::vector<float> half;
    for (std::size_t i = 0; i < values.size(); i += 2) half.push_back(values[i] + values[i + 1]);
    values = half;
  }
  return values[0];
}

TEST_F(Vectors, SumKeepsFloat32BetweenRows) {
  lab_.run(set("gp1", 32) + set("gp2", 64) +
           "S_LI_FP f2, 0.0\nV_RED_SUM f2, gp1, 0\nV_RED_SUM f2, gp2\nS_ST_FP f2, gp0, 3");
  const float first = 0.0f + tree(a_);
  const float sum = first + tree(b_);
  EXPECT_EQ(lab_.state().fp_mem[3], f32_to_bf16(sum));
  EXPECT_EQ(lab_.state().fp_accumulator[2], sum);
  lab_.run("S_MV_FP f3, f2\nV_RED_SUM f0, gp0\nS_ADD_FP f4, f0, f0");
  EXPECT_EQ(lab_.state().fp_accumulator[3], bf16_to_f32(f32_to_bf16(sum))) << "every other reader sees BF16";
  EXPECT_EQ(lab_.state().fp_accumulator[4], 0.0f) << "f0 stays 0";
}

TEST(VectorModes, RunningSumInBf16LosesSmallTerms) {
  for (const bool bf16 : {false, true}) {
    MachineConfig config = Lab::small();
    config.bf16_sums = bf16;
    Lab lab(config);
    lab.set_row(0, {256.0f});
    lab.set_row(32, {0.5f});
    lab.run(set("gp1", 32) + "V_RED_SUM f1, gp0\n.loop gp2, 64\nV_RED_SUM f1, gp1\n.endloop\nS_ST_FP f1, gp0, 0");
    EXPECT_EQ(bf16_to_f32(lab.state().fp_mem[0]), bf16 ? 256.0f : 288.0f);
  }
}

TEST_F(Vectors, MaximumAndSections) {
  const float top = *std::max_element(a_.begin(), a_.end());
  lab_.run(set("gp1", 32) + "S_LI_FP f1, -inf\nV_RED_MAX f1, gp1\nS_LI_FP f2, 1000.0\nV_RED_MAX f2, gp1");
  EXPECT_EQ(lab_.state().fp_accumulator[1], top);
  EXPECT_EQ(lab_.state().fp_accumulator[2], 1000.0f);
  const auto sums = result("V_RED_SUM_SEG gp3, gp1");
  const auto tops = result(set("gp4", 16) + "C_SET_CSR gp4, segment_length\nV_RED_MAX_SEG gp3, gp1");
  for (std::size_t i = 0; i < kLanes; ++i) {
    const auto begin = [&](std::size_t n) { return a_.begin() + static_cast<std::ptrdiff_t>(i / n * n); };
    EXPECT_EQ(sums[i], bf16_to_f32(f32_to_bf16(tree({begin(8), begin(8) + 8}))));
    EXPECT_EQ(tops[i], *std::max_element(begin(16), begin(16) + 16));
  }
}

TEST_F(Vectors, PrefixShiftHadamard) {
  float sum = 0.0f;
  const auto prefix = result("V_PS_V gp3, gp1");
  for (std::size_t i = 0; i < kLanes; ++i) {
    sum += a_[i];
    EXPECT_EQ(prefix[i], bf16_to_f32(f32_to_bf16(sum)));
  }
  const auto shifted = result(set("gp4", 3) + "V_SHFT_V gp3, gp1, gp4");
  const auto rotated = result(set("gp4", 35) + "V_SHFT_V gp3, gp1, gp4, 1");
  const auto sections = result(set("gp4", 4) + "V_SHFT_V gp3, gp1, gp4, 2");
  const auto far = result(set("gp4", 0xfffffff0) + "V_SHFT_V gp3, gp1, gp4");
  for (std::size_t i = 0; i < kLanes; ++i) {
    EXPECT_EQ(shifted[i], i < 3 ? 0.0f : a_[i - 3]);
    EXPECT_EQ(rotated[i], a_[(i + kLanes - 3) % kLanes]);
    EXPECT_EQ(sections[i], a_[i / 8 * 8 + (i + 4) % 8]);
    EXPECT_EQ(far[i], 0.0f);
  }
  // Twice the transform is the identity up to rounding; the first output is the sum / sqrt(n).
  const auto hadamard = result("C_HADAMARD_TRANSFORM gp3, gp1");
  for (std::size_t s = 0; s < kLanes; s += 8) {
    for (std::size_t row = 0; row < 8; ++row) {
      double exact = 0;
      for (std::size_t i = 0; i < 8; ++i)
        exact += static_cast<double>(a_[s + i]) * (std::popcount(row & i) % 2 == 0 ? 1 : -1);
      EXPECT_NEAR(static_cast<double>(hadamard[s + row]), exact / std::sqrt(8.0), 0.05);
    }
  }
}

TEST_F(Vectors, RunningArgMax) {
  std::vector<float> first(kLanes, -9.0f), second(kLanes, -9.0f);
  first[2] = first[5] = -2.0f;  // a tie inside the row
  second[0] = -2.0f;            // a tie across rows
  second[7] = -1.0f;
  lab_.set_row(96, first);
  lab_.set_row(128, second);
  lab_.run(set("gp1", 96) + set("gp3", 100) +
           "S_LI_FP f1, -inf\nV_RED_MAX_IDX gp4, gp1, gp3, f1\nS_ST_INT gp4, gp0, 0\n");
  EXPECT_EQ(lab_.state().int_mem[0], 102u);
  second[7] = -3.0f;
  lab_.set_row(128, second);
  lab_.run(set("gp1", 128) + set("gp3", 200) + "V_RED_MAX_IDX gp4, gp1, gp3, f1");
  EXPECT_EQ(lab_.state().gp[4], 102u) << "equal: the earlier row keeps it";
  EXPECT_EQ(lab_.state().fp_accumulator[1], -2.0f);
}

// Computed by hand.
TEST_F(Vectors, TopKMask) {
  std::vector<float> confidence = {0.5f, 0.9f, 0.9f, 0.1f, 7.0f};
  lab_.set_row(96, confidence);
  const auto top = [&](std::vector<float> mask, std::uint32_t k, std::uint32_t n = 4) {
    mask.resize(kLanes, 1.0f);
    lab_.set_row(128, mask);
    lab_.set_row(160, std::vector<float>(kLanes, 5.0f));
    lab_.run(set("gp1", 96) + set("gp2", 128) + set("gp3", 160) + set("gp4", k) + set("gp5", n) +
             "V_TOPK_MASK gp3, gp1, gp2, gp4, gp5");
    const auto row = lab_.row(160, kLanes);
    std::vector<std::size_t> lanes;
    for (std::size_t i = 0; i < kLanes; ++i)
      if (row[i] != 0.0f) lanes.push_back(i);
    return lanes;
  };
  using Lanes = std::vector<std::size_t>;
  EXPECT_EQ(top({1, 1, 1, 1}, 1), Lanes{1});
  EXPECT_EQ(top({1, 1, 1, 1}, 2), (Lanes{1, 2}));
  EXPECT_EQ(top({1, 0, 0, 1}, 3), (Lanes{0, 3}));
  EXPECT_EQ(top({1, 1, 1, 1}, 0), Lanes{});
  EXPECT_EQ(top({0, 0, 0, 0}, 2), Lanes{});
  EXPECT_EQ(top({1, 1, 1, 1}, 1, 0).size(), kLanes) << "length 0: nothing is written, the 5s stay";
  EXPECT_EQ(top({0, 0, 0, 1}, 40, 4), Lanes{3}) << "lanes beyond the length do not take part";
}

TEST_F(Vectors, SelectIntegers) {
  for (std::uint32_t i = 0; i < 40; ++i) lab_.state().int_mem[i] = 100 + i, lab_.state().int_mem[64 + i] = 200 + i;
  std::vector<float> mask(64, 0.0f);
  mask[1] = 1.0f;
  mask[3] = -0.0f;  // zero
  mask[35] = 1.0f;  // in the second row of the mask
  lab_.set_row(96, mask);
  lab_.run(set("gp1", 64) + set("gp2", 0) + set("gp3", 96) + set("gp4", 40) + set("gp5", 128) +
           "V_SELECT_INT gp5, gp1, gp2, gp3, gp4");
  for (std::uint32_t i = 0; i < 40; ++i) EXPECT_EQ(lab_.state().int_mem[128 + i], (i == 1 || i == 35 ? 200 : 100) + i);
}

TEST_F(Vectors, RouterTopK) {
  std::vector<float> logits(kLanes, -4.0f);
  logits[3] = 2.0f;
  logits[9] = 2.0f;
  logits[30] = 1.0f;
  logits[4] = 0.5f;
  lab_.set_row(96, logits);
  lab_.run(set("gp1", 96) + set("gp2", 10) + set("gp3", 20) + "V_TOPK gp2, gp1, gp3, 0");
  const std::uint32_t expected[] = {3, 9, 30, 4};
  double sum = 0, total = 0;
  for (int i = 0; i < 4; ++i) sum += std::exp(static_cast<double>(logits[expected[i]]));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(lab_.state().int_mem[20 + i], expected[i]);
    const double weight = static_cast<double>(bf16_to_f32(lab_.state().fp_mem[10 + i]));
    EXPECT_NEAR(weight, std::exp(static_cast<double>(logits[expected[i]])) / sum, 0.01);
    total += weight;
  }
  EXPECT_NEAR(total, 1.0, 0.01);
  lab_.run(set("gp4", 8) + set("gp5", 2) +
           "C_SET_CSR gp4, router_experts\nC_SET_CSR gp5, router_top\nV_TOPK gp2, gp1, gp3, 2");
  EXPECT_EQ(lab_.state().int_mem[21], 4u);
  // 128 experts take several rows.
  std::vector<float> many(128, -4.0f);
  for (const std::size_t expert : {2u, 33u, 64u, 65u, 96u, 100u, 120u, 127u}) many[expert] = static_cast<float>(expert);
  lab_.set_row(96, many);
  lab_.run("V_TOPK gp2, gp1, gp3, 1");
  for (std::uint32_t i = 0; const std::uint32_t expert : {127u, 120u, 100u, 96u, 65u, 64u, 33u, 2u})
    EXPECT_EQ(lab_.state().int_mem[20 + i++], expert);
}

/// The sum runs in descending order: small weights after large ones are lost, and the sum stays at the tie below which
/// BF16 rounds down. In any other order (of lanes, ascending, in pairs) they add up first, and all weights differ.
TEST_F(Vectors, RouterSumsInDescendingOrder) {
  std::vector<float> logits(kLanes, -18.0f);
  const float large[] = {0, -0.84375f, -1.1328125f, -1.3359375f, -1.5546875f};
  for (std::size_t i = 0; i < std::size(large); ++i) logits[31 - i] = large[i];
  lab_.set_row(96, logits);
  lab_.run(set("gp1", 96) + set("gp2", 10) + set("gp3", 60) + set("gp4", 32) +
           "C_SET_CSR gp4, router_experts\nC_SET_CSR gp4, router_top\nV_TOPK gp2, gp1, gp3, 2");
  // Of scripts/npu_model.py; ascending, the first would be 0x3ee5.
  const Bf16 expected[] = {0x3ee7, 0x3e47, 0x3e15, 0x3df4, 0x3dc3, 0x31ec};
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(lab_.state().fp_mem[10 + i], expected[i]) << i;
  EXPECT_EQ(lab_.state().int_mem[60], 31u);
}

TEST_F(Vectors, Scalars) {
  lab_.state().fp_mem[7] = f32_to_bf16(2.25f);
  lab_.state().int_mem[9] = 77;
  lab_.run(
      "S_LD_FP f1, gp0, 7\nS_SQRT_FP f2, f1\nS_RECI_FP f3, f1\nS_EXP_FP f4, f1\nS_LI_FP f5, -3.0\n"
      "S_MUL_FP f6, f1, f5\nS_MAX_FP f7, f6, f1\nS_ADD_FP f0, f1, f1\nS_ST_FP f6, gp0, 8\nS_SUB_FP f1, f5, f1\n"
      "S_LD_INT gp1, gp0, 9\nS_ADDI_INT gp2, gp1, 3\nS_SUB_INT gp3, gp0, gp1\nS_MUL_INT gp4, gp2, gp2\n"
      "S_LUI_INT gp5, 0x3fffff\nS_ADD_INT gp6, gp5, gp5\nS_ST_INT gp6, gp1, 1\nS_ADDI_INT gp0, gp1, 5");
  const auto& f = lab_.state().fp_accumulator;
  EXPECT_EQ(f[2], 1.5f);
  EXPECT_EQ(f[3], test::bf16_round(1 / 2.25));
  EXPECT_EQ(f[4], test::bf16_round(std::exp(2.25)));
  EXPECT_EQ(f[6], -6.75f);
  EXPECT_EQ(f[7], 2.25f);
  EXPECT_EQ(f[0], 0.0f);
  EXPECT_EQ(f[1], -5.25f);
  EXPECT_EQ(lab_.state().fp_mem[8], f32_to_bf16(-6.75f));
  const auto& gp = lab_.state().gp;
  EXPECT_EQ(gp[2], 80u);
  EXPECT_EQ(gp[3], static_cast<std::uint32_t>(-77));
  EXPECT_EQ(gp[4], 6400u);
  EXPECT_EQ(gp[5], 0xfffff000u);
  EXPECT_EQ(lab_.state().int_mem[78], 0xffffe000u);
  EXPECT_EQ(gp[0], 0u);
}

TEST_F(Vectors, MapToRow) {
  for (std::size_t i = 0; i < 64; ++i) lab_.state().fp_mem[i] = f32_to_bf16(static_cast<float>(i));
  lab_.run(set("gp3", 96) + set("gp4", 3) + "S_MAP_V_FP gp3, gp4, 2");
  for (std::size_t i = 0; i < kLanes; ++i) EXPECT_EQ(lab_.row(96 + i, 1)[0], static_cast<float>(i + 5));
  lab_.run("S_MAP_V_FP gp3, gp4, gp4, 1");
  for (std::size_t i = 0; i < kLanes; ++i) EXPECT_EQ(lab_.row(96 + i, 1)[0], i < 3 ? static_cast<float>(i + 4) : 0.0f);
  EXPECT_NE(lab_.trap(set("gp4", 33) + "S_MAP_V_FP gp3, gp0, gp4").find("exceeds VLEN"), std::string::npos);
  EXPECT_NE(lab_.trap(set("gp4", 230) + "S_MAP_V_FP gp3, gp4, 0").find("out of range"), std::string::npos);
}

}  // namespace
}  // namespace dllm::npu
