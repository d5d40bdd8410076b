#include "npu_core/machine/machine.h"

#include <fmt/format.h>

#include "npu_core/machine/hazard_monitor.h"
#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab;
using test::set;

std::vector<MxFormat> transfer_formats() {
  std::vector<MxFormat> formats = {{}};
  for (int element = 0; element < kMxElementCount; ++element)
    for (const MxRule rule : {MxRule::kOcp, MxRule::kPlena})
      formats.push_back({static_cast<MxElement>(element), rule, 8});
  return formats;
}

TEST(Transfer, VectorsThroughEveryFormat) {
  for (const MxFormat& format : transfer_formats()) {
    MachineConfig config = Lab::small();
    config.activation = format;
    config.prefetch_v_rows = 2;
    config.store_v_rows = 2;
    Lab lab(config);
    const auto x = test::normals(256, 6);
    const std::uint32_t scale = lab.put_tensor(4096, format, x);
    // Rows 64 elements apart, from element 32: the second half of rows of 64.
    lab.run(set("gp1", 4096) + "C_SET_ADDR_REG a1, gp0, gp1\n" + set("gp2", scale) + "C_SET_SCALE_REG gp2\n" +
            set("gp3", 64) + "C_SET_STRIDE_REG gp3\n" + set("gp4", 32) +
            "H_PREFETCH_V gp4, gp4, a1, 1, 0, 2\nC_FENCE 2\n" + set("gp5", 256) + "H_PREFETCH_V gp5, gp0, a1, 0, 0\n" +
            set("gp1", 65536) + "C_SET_ADDR_REG a2, gp0, gp1\n" + set("gp2", 4096) +
            "C_SET_SCALE_REG gp2\nH_STORE_V gp5, gp4, a2, 1, 0\n");
    const auto seen = test::through(format, x);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(lab.row(32 + i, 1)[0], test::bf16_round(static_cast<double>(seen[32 + i]))) << mx_format_name(format);
      EXPECT_EQ(lab.row(64 + i, 1)[0], test::bf16_round(static_cast<double>(seen[96 + i])));
      EXPECT_EQ(lab.row(256 + 32 + i, 1)[0], test::bf16_round(static_cast<double>(seen[32 + i])));
    }
    const auto stored = lab.get_tensor(65536, 4096, format, 128);
    const auto again = test::through(format, lab.row(256, 64));
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(stored[32 + i], again[i]) << mx_format_name(format);
      EXPECT_EQ(stored[96 + i], again[32 + i]);
      EXPECT_EQ(stored[i], 0.0f) << "the memory between the rows is unchanged";
    }
  }
}

TEST(Transfer, Traps) {
  Lab lab(Lab::small());
  const auto trap = [&](const std::string& source, const char* reason) {
    const std::string message = lab.trap(source);
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find("test.asm:"), std::string::npos) << message;
  };
  trap(set("gp1", 4) + "H_PREFETCH_M gp0, gp1, a0, 0, 0", "not a multiple of the block");
  trap(set("gp1", 8) + "H_PREFETCH_M gp1, gp0, a0, 0, 0", "not a multiple of MLEN");
  trap(set("gp1", 2048 - 16) + "H_PREFETCH_M gp1, gp0, a0, 0, 0", "MRAM address 2032 is out of range");
  trap(set("gp1", 1 << 20) + "C_SET_ADDR_REG a0, gp0, gp1\nH_PREFETCH_M gp0, gp0, a0, 0, 0",
       "HBM address 1048576 is out of range");
  trap(set("gp1", 1) + "C_SET_ADDR_REG a0, gp1, gp0\nH_PREFETCH_M gp0, gp0, a0, 0, 0", "beyond HBM");
  trap(set("gp1", 8192) + "H_PREFETCH_V gp1, gp0, a1, 0, 0", "out of range");
  trap(set("gp1", 16) + "H_STORE_V gp1, gp0, a1, 0, 0", "not a multiple of VLEN");
  trap(set("gp1", 3) + "C_SET_STRIDE_REG gp1\nH_PREFETCH_M gp0, gp0, a2, 1, 0", "STRIDE_REG 3");
  trap(set("gp1", 256) + "S_LD_FP f1, gp1, 0", "FP_MEM address 256 is out of range");
  trap(set("gp1", 0xffffffff) + "S_ST_INT gp1, gp1, 1", "INT_MEM address 4294967296 is out of range");
  trap(set("gp1", 1) + "V_ADD_VV gp1, gp0, gp0", "VRAM address 1 is not a multiple of VLEN");
  trap(set("gp1", 3) + "C_SET_CSR gp1, segment_length", "not a power of two");
  trap(set("gp1", 3) + "C_SET_CSR gp1, bmm_group", "does not divide");
}

TEST(Control, LoopsCountDownAndNest) {
  Lab lab(Lab::small());
  const RunResult result = lab.run(
      ".loop gp1, 3\nS_ST_INT gp1, gp1, 0\n.loop gp2, 4\nS_ADDI_INT gp3, gp3, 1\n.endloop\n.endloop\n"
      "C_LOOP_START gp4, 0\nS_ADDI_INT gp5, gp5, 1\nC_LOOP_END gp4\nC_BREAK\nS_ADDI_INT gp3, gp3, 100\n");
  EXPECT_EQ(lab.state().gp[3], 12u);
  for (std::uint32_t i = 1; i <= 3; ++i) EXPECT_EQ(lab.state().int_mem[i], i) << "the counter runs from the count to 1";
  EXPECT_EQ(lab.state().gp[1], 0u);
  EXPECT_EQ(lab.state().gp[5], 1u) << "a count of 0 runs once";
  EXPECT_TRUE(result.stopped_by_break);
  EXPECT_EQ(result.instructions, 1u + 3 * (1 + 1 + 4 * 2 + 1) + 3 + 1);
  EXPECT_EQ(result.counts[static_cast<std::size_t>(Op::C_LOOP_END)], 3u + 12u + 1u);
}

TEST(Control, BranchesLeaveLoops) {
  Lab lab(Lab::small());
  lab.run(
      set("gp4", 1) + set("gp9", 5) +
      ".loop gp1, 10\n.loop gp2, 10\nS_ADDI_INT gp3, gp3, 1\nS_SUB_INT gp5, gp3, gp9\nC_BNZ gp5, next\nC_BNZ gp4, out\n"
      "next: .endloop\n.endloop\nout: .loop gp6, 2\nS_ADDI_INT gp7, gp7, 1\n.endloop\n");
  EXPECT_EQ(lab.state().gp[3], 5u) << "left both loops in the fifth trip";
  EXPECT_EQ(lab.state().gp[7], 2u);
  EXPECT_TRUE(lab.state().loops.empty());
  EXPECT_EQ(lab.state().gp[2], 6u);
}

TEST(Control, EndlessProgramsAndDeepLoopsAreTrapped) {
  MachineConfig config = Lab::small();
  config.loop_depth = 2;
  Lab lab(config);
  EXPECT_NE(lab.trap(".loop gp1, 2\n.loop gp2, 2\n.loop gp3, 2\n.endloop\n.endloop\n.endloop").find("loop_depth"),
            std::string::npos);
  const auto program = assemble(set("gp1", 1) + "C_BNZ gp1, 0");
  const auto result = lab.machine().run(*program, {.max_instructions = 1000});
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message().find("1000 instructions"), std::string::npos);
}

struct Recorder final : IssueObserver {
  std::vector<std::string> lines;
  void on_issue(const IssueEvent& event) override {
    std::string line = fmt::format("{} {}", event.sequence, to_text(*event.instruction));
    for (int i = 0; i < event.accesses->count; ++i) {
      const MemoryRange& range = (*event.accesses)[i];
      line += fmt::format(" {}@{}:{}x{}", name_of(range.space), range.base, range.groups * range.rows, range.length);
    }
    if (!event.state->loops.empty()) line += fmt::format(" trip {}", event.state->loops.back().trip);
    lines.push_back(line);
  }
};

TEST(Observer, SeesEveryInstructionOnceWithItsAddresses) {
  Lab lab(Lab::small());
  lab.put_tensor(0, Lab::small().weight, std::vector<float>(256, 1.0f));
  const auto program =
      assemble("H_PREFETCH_M gp0, gp0, a0, 0, 0\n.loop gp1, 2\nM_MM 0, gp0, gp0\n.endloop\nM_MM_WO gp0, 0, 32\n");
  Recorder recorder;
  ASSERT_TRUE(lab.machine().run(*program, {.observer = &recorder}).has_value());
  EXPECT_EQ(recorder.lines,
            (std::vector<std::string>{
                "0 H_PREFETCH_M gp0, gp0, a0, 0, 0 HBM@0:16x16 HBM@0:16x2 MRAM@0:16x16", "1 C_LOOP_START gp1, 2",
                "2 M_MM 0, gp0, gp0 MRAM@0:16x4 VRAM@0:4x16 acc@0:1x0 trip 0", "3 C_LOOP_END gp1 trip 0",
                "4 M_MM 0, gp0, gp0 MRAM@0:16x4 VRAM@0:4x16 acc@0:1x0 trip 1", "5 C_LOOP_END gp1 trip 1",
                "6 M_MM_WO gp0, gp0, 32 acc@0:1x0 VRAM@32:4x4"}));
}

TEST(Observer, WithoutDataOnlyIntegersMove) {
  Lab lab(Lab::small());
  const auto program = assemble(
      "li gp1, 5\nS_ST_INT gp1, gp0, 0\nM_MM 0, gp0, gp0\nV_ADD_VF gp0, gp0, f0\nM_MM_WO gp0, 0, 0\nS_LI_FP f1, 1.0");
  Recorder recorder;
  const auto result = lab.machine().run(*program, {.data = false, .observer = &recorder});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->instructions, 6u);
  EXPECT_EQ(recorder.lines.size(), 6u);
  EXPECT_EQ(lab.state().int_mem[0], 5u);
  EXPECT_EQ(lab.state().fp_accumulator[1], 0.0f);
}

TEST(Hazards, UsesBeforeTheFence) {
  Lab lab(Lab::small());
  const auto hazards = [&lab](const std::string& source) {
    const auto program = assemble(source);
    HazardMonitor monitor;
    const auto result = lab.machine().run(*program, {.observer = &monitor});
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
    std::vector<std::uint32_t> indices;
    for (const Hazard& hazard : monitor.hazards()) indices.push_back(hazard.index);
    return indices;
  };
  using Indices = std::vector<std::uint32_t>;
  EXPECT_EQ(hazards("H_PREFETCH_V gp0, gp0, a0, 0, 0, 3\nV_ADD_VF gp0, gp0, f0"), Indices{1});
  EXPECT_EQ(hazards("H_PREFETCH_V gp0, gp0, a0, 0, 0, 3\nC_FENCE 3\nV_ADD_VF gp0, gp0, f0"), Indices{});
  EXPECT_EQ(hazards("H_PREFETCH_V gp0, gp0, a0, 0, 0, 3\nC_FENCE\nV_ADD_VF gp0, gp0, f0"), Indices{});
  EXPECT_EQ(hazards("H_PREFETCH_V gp0, gp0, a0, 0, 0, 3\nC_FENCE 2\nV_ADD_VF gp0, gp0, f0"), Indices{2});
  EXPECT_EQ(hazards("H_PREFETCH_V gp0, gp0, a0, 0, 0\nV_ADD_VF gp0, gp0, f0"), Indices{}) << "untagged: the hardware's";
  EXPECT_EQ(hazards("li gp1, 32\nH_PREFETCH_V gp0, gp0, a0, 0, 0, 1\nV_ADD_VF gp1, gp1, f0"), Indices{})
      << "another row";
  EXPECT_EQ(hazards("H_STORE_V gp0, gp0, a0, 0, 0, 1\nV_RED_SUM f1, gp0\nV_ADD_VF gp0, gp0, f0"), Indices{2})
      << "reading is safe";
}

TEST(Config, RefusesContradictions) {
  const auto broken = [](auto change) {
    MachineConfig config = Lab::small();
    change(config);
    return !Machine::create(config).has_value();
  };
  EXPECT_FALSE(broken([](MachineConfig&) {}));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.blen = 3; }));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.hlen = 32; }));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.vlen = 8; }));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.vram_elements = 33; }));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.mram_elements = 100; }));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.weight.block = 32; }));
  EXPECT_TRUE(broken([](MachineConfig& c) { c.contraction_bits = 40; }));
}

}  // namespace
}  // namespace dllm::npu
