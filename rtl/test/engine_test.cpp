#include "test/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string_view>

#include "npu_core/assembler/assembler.h"
#include "npu_core/isa/encoding.h"

namespace dllm::rtl {
namespace {

// One cycle until the first instruction executes, and those that EngineResult explains: no others.
std::int64_t unexplained(const EngineResult& result, std::int64_t programs) {
  return result.cycles - result.expected - programs -
         static_cast<std::int64_t>(result.loops_alone + result.port_waits + result.transfers_longer);
}

void expect_exact(const EngineResult& result) {
  EXPECT_EQ(result.wrong, 0u) << result.first;
  EXPECT_EQ(result.units_apart, 0u) << result.first;
  std::printf("%llu instructions, %lld cycles, simulator %lld; loops alone %llu, port %llu, transfers %llu\n",
              static_cast<unsigned long long>(result.instructions), static_cast<long long>(result.cycles),
              static_cast<long long>(result.expected), static_cast<unsigned long long>(result.loops_alone),
              static_cast<unsigned long long>(result.port_waits),
              static_cast<unsigned long long>(result.transfers_longer));
}

struct Kind {
  ProgramKind kind;
  const char* name;
};

class RtlPrograms : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, RtlPrograms,
                         ::testing::Values(Kind{ProgramKind::kSelect, "Select"}, Kind{ProgramKind::kMap, "Map"},
                                           Kind{ProgramKind::kLanes, "Lanes"},
                                           Kind{ProgramKind::kReductions, "Reductions"},
                                           Kind{ProgramKind::kScalar, "Scalar"}, Kind{ProgramKind::kMixed, "Mixed"}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(RtlPrograms, AsTheMachineAndTheSimulator) {
  expect_exact(check_programs(8, GetParam().kind, 100000, 11));
  expect_exact(check_programs(64, GetParam().kind, 2000, 12));
}

class RtlSampling : public ::testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Forms, RtlSampling,
                         ::testing::Values(std::pair{0, 0}, std::pair{0, 1}, std::pair{1, 0}, std::pair{1, 1},
                                           std::pair{2, 0}, std::pair{2, 1}));

// DLLM_RTL_WAVES names a file for the waveform of the last program that runs (make rtl-wave).
TEST_P(RtlSampling, ProgramsInValuesAndTime) {
  const char* waves = std::getenv("DLLM_RTL_WAVES");
  const EngineResult result = check_sampling(GetParam().first, GetParam().second, waves != nullptr ? waves : "");
  expect_exact(result);
  EXPECT_EQ(unexplained(result, 1), 0);
  EXPECT_LE(static_cast<double>(result.cycles), 1.01 * static_cast<double>(result.expected));
}

using Trap = TrapCode;

Trap trap_of(const Halt& halt) { return static_cast<Trap>(halt.trap); }

std::vector<std::uint32_t> words_of(const std::string& text) {
  const auto program = npu::assemble(text, {.file = "test.asm"});
  EXPECT_TRUE(program.has_value()) << text;
  std::vector<std::uint32_t> words;
  for (const npu::Instruction& one : program->code) words.push_back(*npu::encode(one));
  return words;
}

/// gp1 is 7 before the instruction; what follows must not run if it traps.
Halt halt_at(std::uint32_t word) {
  std::vector<std::uint32_t> words = words_of("S_ADDI_INT gp1, gp0, 7");
  words.push_back(word);
  words.push_back(words_of("S_ADDI_INT gp1, gp0, 9").front());
  return run_words(words);
}

/// All 64 opcodes with operands 0. The others are instructions of other units, or none.
TEST(RtlTraps, InstructionsThatTheEngineLacks) {
  // Loops, branches and transfers are not single instructions.
  const std::set<std::string_view> elsewhere = {"C_LOOP_START", "C_LOOP_END", "C_BNZ", "H_PREFETCH_V"};
  int missing = 0;
  for (std::uint32_t word = 0; word < 64; ++word) {
    const auto decoded = npu::decode(word);
    const std::string_view name = decoded ? npu::info(decoded->op).mnemonic : "none";
    if (elsewhere.contains(name)) continue;
    const Halt halt = halt_at(word);
    if (decoded && in_engine(decoded->op)) {
      EXPECT_EQ(trap_of(halt), Trap::kNone) << name;
      continue;
    }
    ++missing;
    EXPECT_EQ(trap_of(halt), Trap::kOpcode) << "word " << word << ", " << name;
    EXPECT_EQ(halt.gp1, 7u) << name;
  }
  // None, 13 of the matrix unit, H_PREFETCH_M and H_STORE_V.
  EXPECT_EQ(missing, 16);
}

TEST(RtlTraps, FunctionCodesThatNoInstructionHas) {
  // V_RECI_V, V_RED_SUM, V_RED_MAX, V_MAX_VF and V_MIN_VF select by bits 25:22, V_RED_MAX_IDX and S_LI_FP by 31:30.
  for (const std::uint32_t opcode : {0x14u, 0x15u, 0x16u, 0x35u, 0x36u})
    EXPECT_EQ(trap_of(halt_at(opcode | 2u << 22)), Trap::kOpcode) << opcode;
  for (const std::uint32_t opcode : {0x38u, 0x3bu}) EXPECT_EQ(trap_of(halt_at(opcode | 2u << 30)), Trap::kOpcode);
  EXPECT_EQ(trap_of(halt_at(0x32u | 3u << 22)), Trap::kOpcode) << "V_SHFT_V has modes 0 to 2";
  EXPECT_EQ(trap_of(halt_at(0x37u | 3u << 18)), Trap::kOpcode) << "V_TOPK has policies 0 to 2";
  EXPECT_EQ(trap_of(halt_at(0x3fu | 27u << 14)), Trap::kOpcode) << "control registers go to 26";
  EXPECT_EQ(trap_of(halt_at(words_of("V_RED_DRAW gp0, gp0, gp0, f0, f0, gp0").front())), Trap::kOpcode);
}

// The machine has no such limits (docs/design/rtl.md).
TEST(RtlTraps, WhatTheHardwareLimits) {
  const auto halt = [](const std::string& text) { return trap_of(run_words(words_of(text))); };
  EXPECT_EQ(halt("li gp2, 9\nV_TOPK_MASK gp0, gp0, gp0, gp2, gp2"), Trap::kLength);
  EXPECT_EQ(halt("li gp2, 8\nV_TOPK_MASK gp0, gp0, gp0, gp2, gp2"), Trap::kNone);
  const std::string sources = "li gp2, 4\nli gp3, 8\nli gp4, 6\nV_SELECT_INT gp4, gp2, gp3, gp0, ";
  EXPECT_EQ(halt(sources + "gp4"), Trap::kOrder);
  EXPECT_EQ(halt(sources + "gp0"), Trap::kNone) << "no elements";
}

// A branch within a loop, after another loop in its body has ended, must not drop the loop.
TEST(RtlLoops, BranchesBehindInnerLoops) {
  const Halt halt =
      run_words(words_of("li gp3, 1\n.loop gp5, 3\n.loop gp6, 2\nS_ADDI_INT gp1, gp1, 1\n.endloop\nC_BNZ gp3, on\n"
                         "S_ADDI_INT gp1, gp1, 100\non:\nS_ADDI_INT gp1, gp1, 10\n.endloop\n"));
  EXPECT_EQ(trap_of(halt), Trap::kNone);
  EXPECT_EQ(halt.gp1, 3u * (2 + 10));
}

TEST(RtlTraps, AddressesLengthsAndLoops) {
  const auto halt = [](const std::string& text) {
    return run_words(words_of("S_ADDI_INT gp1, gp0, 7\n" + text + "\nS_ADDI_INT gp1, gp0, 9"));
  };
  const std::pair<const char*, Trap> wrong[] = {{"li gp2, 4096\nV_EXP_V gp0, gp2", Trap::kRow},
                                                {"li gp2, 3\nV_EXP_V gp0, gp2", Trap::kRow},
                                                {"S_LD_INT gp3, gp0, 512", Trap::kWord},
                                                {"S_ST_FP f1, gp0, 256", Trap::kWord},
                                                {"li gp2, 9\nS_MAP_V_FP gp0, gp0, gp2", Trap::kLength}};
  for (const auto& [text, trap] : wrong) {
    EXPECT_EQ(trap_of(halt(text)), trap) << text;
    EXPECT_EQ(halt(text).gp1, 7u) << text;
  }
  constexpr std::uint32_t kLoopEnd = 0x30u | 2u << 6;  // of gp2, without a start: the assembler refuses it
  EXPECT_EQ(trap_of(halt_at(kLoopEnd)), Trap::kLoop);
  EXPECT_EQ(halt("li gp2, 4088\nV_EXP_V gp0, gp2").gp1, 9u);
}

}  // namespace
}  // namespace dllm::rtl
