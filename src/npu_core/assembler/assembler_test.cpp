#include "npu_core/assembler/assembler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "npu_core/assembler/hazards.h"
#include "npu_core/assembler/testing/fuzz_entry.h"
#include "npu_core/isa/csr.h"

namespace dllm::npu {
namespace {

std::vector<std::string> lines_of(std::string_view source) {
  const auto program = assemble(source, {.file = "t.asm"});
  EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message());
  std::vector<std::string> lines;
  if (program)
    for (const Instruction& instruction : program->code) lines.push_back(to_text(instruction));
  return lines;
}

using Lines = std::vector<std::string>;

void expect_error(std::string_view source, std::string_view where, std::string_view what) {
  const auto program = assemble(source, {.file = "t.asm"});
  ASSERT_FALSE(program.has_value()) << source;
  EXPECT_TRUE(program.error().where.starts_with(where)) << program.error().message();
  EXPECT_NE(program.error().message().find(what), std::string::npos) << program.error().message();
}

TEST(Assembler, PlenaSyntax) {
  EXPECT_EQ(lines_of("S_ADDI_INT gp1, gp0, 128    ; gp1 = 128\n"
                     "M_MM 0, gp2, gp4 // comment\n\n"
                     "M_MM_WO gp1, gp0, 0\n"
                     "M_MM_WO gp1, 0, 0\n"
                     "H_PREFETCH_V gp1, gp2, a2, 1, 0\n"
                     "V_SUB_VF gp2, gp1, f0, 0, 1\n"
                     "V_EXP_V gp2, gp2, 0\n"
                     "C_BREAK"),
            (Lines{"S_ADDI_INT gp1, gp0, 128", "M_MM 0, gp2, gp4", "M_MM_WO gp1, gp0, 0", "M_MM_WO gp1, gp0, 0",
                   "H_PREFETCH_V gp1, gp2, a2, 1, 0", "V_SUB_VF gp2, gp1, f0, 0, 1", "V_EXP_V gp2, gp2", "C_BREAK"}));
}

TEST(Assembler, WhatPlenasGeneratorsWriteBeyondTheirManuals) {
  EXPECT_EQ(lines_of("S_EXP_FP f1, f2, 0\nS_RECI_FP f1, f1, 0\nV_EXP_V gp2, gp2, 1, 0\nV_RED_MAX f1, gp2, 0, 0\n"
                     "M_MV_WO gp1, gp0, 0\nM_MV_WO gp1, gp0, 64\nM_BMV_WO gp1, 0, 64\nM_MV gp0, gp1, gp2\n"),
            (Lines{"S_EXP_FP f1, f2", "S_RECI_FP f1, f1", "V_EXP_V gp2, gp2, 1", "V_RED_MAX f1, gp2", "M_MV_WO gp1, 0",
                   "M_MV_WO gp1, 64", "M_BMV_WO gp1, 64", "M_MV 0, gp1, gp2"}));
  EXPECT_EQ(lines_of("S_ADD_INT gpE, gpa, gp10\nS_SELECT_INT gp1, gpB, gpC, gpD, gpF"),
            (Lines{"S_ADD_INT gp14, gp10, gp10", "V_SELECT_INT gp1, gp11, gp12, gp13, gp15"}));
  expect_error("S_EXP_FP f1, f2, 1", "t.asm:1:1", "takes 2 operands, not 3");
  expect_error("M_MV_WO gp1, 64, 0", "t.asm:1:1", "takes 2 operands, not 3");
  expect_error("S_ADD_INT gpG, gp1, gp1", "t.asm:1:11", "expected a register");
}

TEST(Assembler, SeveralErrorsInOneRun) {
  const Assembly bad = assemble_all(
      "M_MN 0, gp1, gp2\n.loop gp0, 3\nS_ADD_FP f1, f2, f9\n.endloop\n.const A = 1/0\nC_BNZ gp1, nowhere\n"
      ".rep 3\nfrob\n.endr\n.macro m a\nS_MV_FP \\a, \\a\n.endm\nm gp1\nm\n.profile p\n",
      {.file = "t.asm"});
  Lines where;
  for (const Error& error : bad.errors) where.push_back(error.where);
  EXPECT_EQ(where, (Lines{"t.asm:1:1", "t.asm:2:7", "t.asm:3:18", "t.asm:5:15", "t.asm:8:1 (expanded from line 7)",
                          "t.asm:11:9 (expanded from line 13)", "t.asm:14:2", "t.asm:15:1", "t.asm:6:12"}));
  EXPECT_EQ(assemble_all("frob\n\nfrob\nfrob", {.file = "t.asm", .max_errors = 2}).errors.size(), 2u);
  const Assembly good = assemble_all("C_BREAK");
  EXPECT_TRUE(good.errors.empty());
  EXPECT_EQ(good.program.words.size(), 1u);
}

TEST(Assembler, OperandKindChoosesTheForm) {
  EXPECT_EQ(lines_of("S_MAP_V_FP gp1, gp2, 5\nS_MAP_V_FP gp1, gp2, gp0\nS_MAP_V_FP gp1, gp2, gp3, 7"),
            (Lines{"S_MAP_V_FP gp1, gp2, 5", "S_MAP_V_FP gp1, gp2, gp0", "S_MAP_V_FP gp1, gp2, gp3, 7"}));
  EXPECT_EQ(lines_of("S_MAP_V_FP gp1, gp2, 7, gp3\nS_MAP_V_FP gp1, gp2, 0, gp3\nS_MAP_V_FP gp1, gp2, 5, 0"),  // d-PLENA
            (Lines{"S_MAP_V_FP gp1, gp2, gp3, 7", "S_MAP_V_FP gp1, gp2, gp3", "S_MAP_V_FP gp1, gp2, 5"}));
  const auto program = assemble("S_MAP_V_FP gp1, gp2, gp0");
  EXPECT_EQ(program->code[0].op, Op::S_MAP_V_FP_LEN);
}

TEST(Assembler, LoadImmediate) {
  EXPECT_EQ(lines_of("li gp1, 262143"), (Lines{"S_ADDI_INT gp1, gp0, 262143"}));
  EXPECT_EQ(lines_of("li gp1, 262144"), (Lines{"S_LUI_INT gp1, 64"}));
  EXPECT_EQ(lines_of("li gp1, 0x12345678"), (Lines{"S_LUI_INT gp1, 74565", "S_ADDI_INT gp1, gp1, 1656"}));
  EXPECT_EQ(lines_of("li gp1, -1"), (Lines{"S_LUI_INT gp1, 1048575", "S_ADDI_INT gp1, gp1, 4095"}));
}

TEST(Assembler, DirectivesEmitNothing) {
  EXPECT_EQ(lines_of(".const N = 4\n.define M N*(2+1)\n.assert M - 11\n"), (Lines{}));
}

TEST(Assembler, Expressions) {
  EXPECT_EQ(lines_of(".const N = 4\n.const M N*(2+1) << 1\nS_ADDI_INT gp1, gp0, M - 24 + (0xff & 0b101) % 4\n"),
            (Lines{"S_ADDI_INT gp1, gp0, 1"}));
}

TEST(Assembler, MacroAndRep) {
  EXPECT_EQ(
      lines_of(".macro step d, n\n  V_ADD_VV \\d, \\d, gp2\n  S_ADDI_INT \\d, \\d, (\\n) * 8\n.endm\n"
               ".rep 2, i\n  step gp1, \\i + 1\n.endr"),
      (Lines{"V_ADD_VV gp1, gp1, gp2", "S_ADDI_INT gp1, gp1, 8", "V_ADD_VV gp1, gp1, gp2", "S_ADDI_INT gp1, gp1, 16"}));
}

TEST(Assembler, LoopsLabelsRegions) {
  const auto program = assemble(
      ".profile outer\n.loop gp1, 3\n.loop gp2, 4\nagain: S_SUB_INT gp3, gp3, gp4\nC_BNZ gp3, again\nC_BNZ gp3, out\n"
      ".endloop\n.endloop\n.endprofile\nout: C_BREAK\n");
  ASSERT_TRUE(program.has_value()) << program.error().message();
  EXPECT_EQ(to_text(program->code[3]), "C_BNZ gp3, -1");
  EXPECT_EQ(to_text(program->code[4]), "C_BNZ gp3, 3");
  EXPECT_EQ(program->loop_depth, 2);
  EXPECT_EQ(program->loop_partner[0], 6u);
  EXPECT_EQ(program->loop_partner[6], 0u);
  EXPECT_EQ(program->loop_partner[1], 5u);
  ASSERT_EQ(program->regions.size(), 1u);
  EXPECT_EQ(program->regions[0].end, 7u);
  EXPECT_EQ(program->lines[6], 8u);
}

TEST(Assembler, ErrorsNameLineColumnAndReason) {
  expect_error("\nM_MN 0, gp1, gp2", "t.asm:2:1", "did you mean M_MM?");
  expect_error("  M_MM 0, gp1, gp16", "t.asm:1:16", "no register 'gp16'");
  expect_error("M_MM 0, gp1", "t.asm:1:1", "takes 3 operands, not 2");
  expect_error("M_MM gp1, gp1, gp2", "t.asm:1:6", "must be 0");
  expect_error("S_ADDI_INT gp1, gp0, 262144", "t.asm:1:22", "largest value is 262143");
  expect_error("S_ADDI_INT gp1, gp0, -1", "t.asm:1:22", "unsigned");
  expect_error("S_ADD_FP gp1, f0, f0", "t.asm:1:10", "expected a register f0 to f7");
  expect_error("S_ADDI_INT gp1, gp0, N", "t.asm:1:22", "'N' is not a constant");
  expect_error("S_ADDI_INT gp1, gp0, 1/0", "t.asm:1:25", "division by zero");
  expect_error("C_BNZ gp1, nowhere", "t.asm:1:12", "no label 'nowhere'");
  expect_error("x: C_BREAK\nx: C_BREAK", "t.asm:2:1", "defined twice");
  expect_error(".loop gp1, 3\nC_BREAK", "t.asm:1:1", "never closed");
  expect_error(".endloop", "t.asm:1:1", "closes nothing");
  expect_error(".profile a\n.loop gp1, 2\n.endprofile", "t.asm:3:1", ".loop of line 2 is open");
  expect_error(".frob", "t.asm:1:1", "unknown directive");
  expect_error(".const A = 1\n.const A = 2", "t.asm:2:8", "defined twice");
  expect_error(".assert 0", "t.asm:1:9", "assertion failed");
  expect_error("S_LI_FP f1, 1e39", "t.asm:1:13", "range");
  expect_error("C_SET_CSR gp1, bmm_rowz", "t.asm:1:16", "no control register");
  expect_error(".macro a\na\n.endm\na", "t.asm:2:1 (expanded from line 4)", "nest too deeply");
  expect_error(".macro m x\nS_ADDI_INT \\x, gp0, 1\n.endm\nm f1", "t.asm:2:12 (expanded from line 4)",
               "expected a register");
  expect_error(".rep 100000000000\n.endr\n.rep 100000000000\nC_BREAK\n.endr", "t.asm:3:6", "more than");
}

TEST(Assembler, LoopStructureIsChecked) {
  expect_error("C_LOOP_START gp1, 2", "t.asm:1 (instruction 0)", "no C_LOOP_END");
  expect_error("C_LOOP_END gp1", "t.asm:1", "no C_LOOP_START");
  expect_error("C_LOOP_START gp1, 2\nC_LOOP_END gp2", "t.asm:2", "counts in gp1");
  expect_error("C_LOOP_START gp0, 2\nC_LOOP_END gp0", "t.asm:1", "gp0");
  expect_error("C_BNZ gp1, in\nC_LOOP_START gp1, 2\nin: C_LOOP_END gp1", "t.asm:1", "jumps into the loop");
  expect_error("C_BNZ gp1, -1", "t.asm:1", "outside the program");
}

TEST(Hazards, FindsWhatSoftwareMustAvoid) {
  const auto found = [](std::string_view source) {
    const auto program = assemble(source);
    EXPECT_TRUE(program.has_value()) << program.error().message();
    std::string all;
    if (program)
      for (const Hazard& hazard : check_hazards(*program))
        all += std::to_string(hazard.index) + ": " + hazard.what + "\n";
    return all;
  };
  EXPECT_EQ(found("li gp1, 1\nS_ADD_INT gp2, gp1, gp1\nS_ST_INT gp2, gp0, 0"), "");
  EXPECT_EQ(found("S_ADD_INT gp2, gp1, gp0"), "0: gp1 is read, but nothing has written it\n");
  EXPECT_EQ(found("S_ADDI_INT gp2, gp2, 5"), "0: gp2 is read, but nothing has written it\n");
  EXPECT_EQ(found("S_ADDI_INT gp0, gp0, 1"), "0: gp0 is always 0: the result is lost\n");
  EXPECT_EQ(found(".loop gp1, 2\nS_ADDI_INT gp1, gp0, 5\n.endloop"), "1: gp1 counts an open loop\n");
  EXPECT_EQ(found("M_MM 0, gp0, gp0"), "0: the program ends without writing out what is in acc\n");
  EXPECT_EQ(found("M_MM_WO gp0, 0, 0"), "0: acc is written out, but nothing has filled it\n");
  EXPECT_EQ(found("M_BTMM 0, gp0, gp0\nC_SET_CSR gp0, bmm_rows\nM_BMM_WO gp0, 0"),
            "1: bmm_rows changes while acc_heads holds a partial sum\n");
  EXPECT_EQ(found("C_SET_ADDR_REG a1, gp0, gp0\nH_PREFETCH_V gp0, gp0, a1, 0, 0, 3"),
            "1: no C_FENCE waits for tag 3\n");
  EXPECT_EQ(found("C_SET_ADDR_REG a1, gp0, gp0\nH_PREFETCH_V gp0, gp0, a1, 0, 0, 3\nC_FENCE 3"), "");
  EXPECT_EQ(found("S_LUI_INT gp1, 0x300000"), "0: the upper two bits of the immediate are lost\n");
  EXPECT_EQ(found("C_BREAK\nM_SUM"), "1: nothing reaches this instruction: it follows C_BREAK\n");
}

/// Any instruction that the table allows.
Instruction arbitrary_instruction(const InstructionInfo& row) {
  Instruction instruction{row.op, {}};
  for (const Operand& operand : row.operand_list()) {
    std::uint32_t bound = 1u << field_info(operand.field).width;
    if (operand.kind == OperandKind::kGp) bound = kGpRegisters;
    if (operand.kind == OperandKind::kFp) bound = kFpRegisters;
    if (operand.kind == OperandKind::kAddr) bound = kAddressRegisters;
    if (operand.kind == OperandKind::kZero) bound = 1;
    if (operand.kind == OperandKind::kUint) bound = operand.limit + 1;
    if (operand.kind == OperandKind::kCsr) bound = kCsrCount;
    instruction.set(operand.field, *rc::gen::inRange<std::uint32_t>(0, bound));
  }
  return instruction;
}

TEST(RoundTrip, EveryInstructionThroughTextAndWord) {
  const bool holds = rc::check("text and word of any instruction read back as the instruction", [] {
    for (const InstructionInfo& row : instruction_table()) {
      const Instruction instruction = arbitrary_instruction(row);
      const auto word = encode(instruction);
      RC_ASSERT(word.has_value());
      const auto decoded = decode(*word);
      RC_ASSERT(decoded.has_value());
      RC_ASSERT(*decoded == instruction);
      if (row.control_writes & kBranches) continue;  // legal only inside a program: tested below
      const auto program = assemble(to_text(instruction));
      if (!program) RC_FAIL(program.error().message());
      RC_ASSERT(program->words == std::vector<std::uint32_t>{*word});
      RC_ASSERT(disassemble(*program, false) == to_text(instruction) + "\n");
    }
  });
  EXPECT_TRUE(holds);
}

TEST(RoundTrip, ProgramsWithLoopsAndBranches) {
  const auto program = assemble(
      ".loop gp5, 3\n.rep 5, i\nS_ADDI_INT gp\\i, gp0, \\i\n.endr\nC_BNZ gp3, -2\n.loop gp6, 1\nC_BNZ gp4, "
      "3\n.endloop\n.endloop\nC_FENCE\nC_FENCE 2\n");
  ASSERT_TRUE(program.has_value()) << program.error().message();
  for (const bool annotate : {false, true}) {
    const auto again = assemble(disassemble(*program, annotate));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->words, program->words);
  }
  for (const std::string& bytes : {to_binary(*program), to_hex_text(*program)}) {
    const auto again = program_from_bytes(bytes, "x");
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->words, program->words);
  }
}

/// A branch of PLENA has other instructions at two opcodes.
TEST(WordFile, OfAnotherBranchIsRefusedWhereItDiffers) {
  const std::vector<std::uint32_t> max = {0x35u | 1u << 6 | 2u << 10, 0x34u}, sum = {0x3Cu, 0x34u};
  const std::vector<std::uint32_t> same = {0x0Du | 1u << 6 | 2u << 10 | 3u << 14, 0x34u};
  for (const auto& words : {max, sum, same}) EXPECT_TRUE(program_from_words(words, "x"));
  EXPECT_TRUE(program_from_words(same, "x", WordSource::kPlenaCompiler));
  for (const auto& [words, name] : {std::pair{max, "S_MAP_FP_V"}, std::pair{sum, "M_TMM_A"}}) {
    const auto other = program_from_words(words, "x", WordSource::kPlenaCompiler);
    ASSERT_FALSE(other) << name;
    EXPECT_NE(other.error().what.find(name), std::string::npos) << other.error().what;
  }
  const Assembly named = assemble_all("m_tmm_a 0, gp1, gp2\n");
  ASSERT_EQ(named.errors.size(), 1u);
  EXPECT_NE(named.errors.front().what.find("plena-compiler"), std::string::npos) << named.errors.front().what;
}

TEST(Assembler, TakesTheOtherNameOfShifts) {
  const auto ours = assemble("V_SHFT_V gp1, gp2, gp3, 1\n"), other = assemble("V_SHIFT_V gp1, gp2, gp3, 1\n");
  ASSERT_TRUE(ours && other);
  EXPECT_EQ(ours->words, other->words);
}

TEST(ProgramFile, DamagedFiles) {
  EXPECT_FALSE(program_from_bytes("abc", "x"));
  EXPECT_FALSE(program_from_bytes(std::string(4, '\0'), "x"));
  const auto bad = program_from_bytes("0x00000034\n0x0000003g\n", "x.mem");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().where, "x.mem:2");
}

TEST(FuzzCorpus, NpuAssembler) {
  const auto root = std::filesystem::path(DLLM_SOURCE_DIR) / "fuzz/corpus/npu_assembler";
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    SCOPED_TRACE(entry.path());
    fuzz_assembler(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    fuzz_program(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++files;
  }
  EXPECT_GT(files, 0u);
}

/// Every scalar of either format disassembles to a number that reads back as the same word.
TEST(Assembler, ScalarsReadBack) {
  for (const bool half : {false, true}) {
    std::string source;
    for (int bits = 0; bits < 1 << 16; bits += 7) source += fmt::format("S_LI_FP f1, 0x{:04x}\n", bits);
    const auto program = assemble(source, {.half_scalars = half});
    ASSERT_TRUE(program) << program.error().message();
    const std::string text = disassemble(*program, false);
    const auto again = assemble(text, {.half_scalars = half});
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(again->words, program->words);
  }
  const auto one = assemble("S_LI_FP f1, 1.0", {.half_scalars = true});
  EXPECT_EQ(disassemble(*one, false), "S_LI_FP f1, 1.0\n");
  EXPECT_EQ(one->code[0].get(Field::kImm16), 0x3c00u);
}

}  // namespace
}  // namespace dllm::npu
