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

// Values of rtl/traps.svh.
enum class Trap { kNone, kOpcode, kRow, kWord, kLength, kLoop, kOrder };

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
  const std::set<std::string_view> present = {
      "V_ADD_VV",        "V_ADD_VF",         "V_SUB_VV",         "V_SUB_VF",   "V_EXP_V",       "V_RED_SUM",
      "V_RED_MAX",       "S_ADD_FP",         "S_SUB_FP",         "S_MAX_FP",   "S_MUL_FP",      "S_EXP_FP",
      "S_RECI_FP",       "S_LD_FP",          "S_ST_FP",          "S_MAP_V_FP", "S_ADD_INT",     "S_ADDI_INT",
      "S_SUB_INT",       "S_MUL_INT",        "S_LUI_INT",        "S_LD_INT",   "S_ST_INT",      "C_SET_ADDR_REG",
      "C_SET_SCALE_REG", "C_SET_STRIDE_REG", "C_SET_V_MASK_REG", "C_BREAK",    "V_RED_MAX_IDX", "V_TOPK_MASK",
      "V_SELECT_INT",    "S_LI_FP",          "S_MV_FP",          "C_FENCE"};
  // Loops and transfers are not single instructions.
  const std::set<std::string_view> elsewhere = {"C_LOOP_START", "C_LOOP_END", "H_PREFETCH_V"};
  int missing = 0;
  for (std::uint32_t word = 0; word < 64; ++word) {
    const auto decoded = npu::decode(word);
    const std::string_view name = decoded ? npu::info(decoded->op).mnemonic : "none";
    if (elsewhere.contains(name)) continue;
    const Halt halt = halt_at(word);
    if (present.contains(name)) {
      EXPECT_EQ(trap_of(halt), Trap::kNone) << name;
      continue;
    }
    ++missing;
    EXPECT_EQ(trap_of(halt), Trap::kOpcode) << "word " << word << ", " << name;
    EXPECT_EQ(halt.gp1, 7u) << name;
  }
  EXPECT_EQ(missing, 64 - 3 - 33);
}

TEST(RtlTraps, FunctionCodesThatTheEngineLacks) {
  for (const char* text : {"V_SQRT_V gp0, gp0", "V_RED_SUM_SEG gp0, gp0", "V_RED_MAX_SEG gp0, gp0"})
    EXPECT_EQ(trap_of(halt_at(words_of(text).front())), Trap::kOpcode) << text;
  EXPECT_EQ(trap_of(halt_at(0x15u | 2u << 22)), Trap::kOpcode) << "V_RED_SUM with a code that no instruction has";
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
