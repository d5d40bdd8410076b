#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "npu_core/isa/csr.h"
#include "npu_core/isa/encoding.h"
#include "npu_core/isa/generate.h"

namespace dllm::npu {
namespace {

Instruction make(Op op, std::initializer_list<std::pair<Field, std::uint32_t>> fields) {
  Instruction instruction{op, {}};
  for (const auto& [field, value] : fields) instruction.set(field, value);
  return instruction;
}

std::uint32_t word_of(const Instruction& instruction) {
  const auto word = encode(instruction);
  EXPECT_TRUE(word.has_value()) << (word ? "" : word.error().message());
  return word ? *word : 0;
}

TEST(Table, RowsAreCompleteAndInOrder) {
  int index = 0;
  for (const InstructionInfo& row : instruction_table()) {
    EXPECT_EQ(static_cast<int>(row.op), index++) << row.mnemonic;
    EXPECT_FALSE(row.mnemonic.empty());
    EXPECT_FALSE(row.effect.empty()) << row.mnemonic;
    EXPECT_GT(row.opcode, 0) << row.mnemonic;
    EXPECT_LT(row.opcode, 64) << row.mnemonic;
  }
}

TEST(Table, OperandsNeverShareBits) {
  for (const InstructionInfo& row : instruction_table()) {
    std::uint32_t used = 0x3f | row.select_mask;
    bool seen_optional = false;
    for (const Operand& operand : row.operand_list()) {
      const FieldInfo& f = field_info(operand.field);
      const std::uint32_t mask = ((1u << f.width) - 1u) << f.low;
      EXPECT_EQ(used & mask, 0u) << row.mnemonic << " " << operand.name;
      used |= mask;
      EXPECT_LE(seen_optional, operand.optional) << row.mnemonic << ": optional operands come last";
      seen_optional = operand.optional;
      if (operand.kind == OperandKind::kUint) {
        EXPECT_EQ(std::uint64_t{operand.limit} >> f.width, 0u) << row.mnemonic;
      }
    }
  }
}

// PLENA's public opcode numbers; the project's own instructions use codes that PLENA leaves free.
TEST(Table, OpcodesArePlenas) {
  const std::pair<const char*, int> expected[] = {{"M_MM", 0x01},
                                                  {"M_TMM", 0x02},
                                                  {"M_BMM", 0x03},
                                                  {"M_BTMM", 0x04},
                                                  {"M_BMM_WO", 0x05},
                                                  {"M_MM_WO", 0x06},
                                                  {"M_MV", 0x07},
                                                  {"M_TMV", 0x08},
                                                  {"M_BMV", 0x09},
                                                  {"M_BTMV", 0x0A},
                                                  {"M_MV_WO", 0x0B},
                                                  {"M_BMV_WO", 0x0C},
                                                  {"V_ADD_VV", 0x0D},
                                                  {"V_ADD_VF", 0x0E},
                                                  {"V_SUB_VV", 0x0F},
                                                  {"V_SUB_VF", 0x10},
                                                  {"V_MUL_VV", 0x11},
                                                  {"V_MUL_VF", 0x12},
                                                  {"V_EXP_V", 0x13},
                                                  {"V_RECI_V", 0x14},
                                                  {"V_RED_SUM", 0x15},
                                                  {"V_RED_MAX", 0x16},
                                                  {"S_ADD_FP", 0x17},
                                                  {"S_SUB_FP", 0x18},
                                                  {"S_MAX_FP", 0x19},
                                                  {"S_MUL_FP", 0x1A},
                                                  {"S_EXP_FP", 0x1B},
                                                  {"S_RECI_FP", 0x1C},
                                                  {"S_SQRT_FP", 0x1D},
                                                  {"S_LD_FP", 0x1E},
                                                  {"S_ST_FP", 0x1F},
                                                  {"S_MAP_V_FP", 0x20},
                                                  {"S_ADD_INT", 0x21},
                                                  {"S_ADDI_INT", 0x22},
                                                  {"S_SUB_INT", 0x23},
                                                  {"S_MUL_INT", 0x24},
                                                  {"S_LUI_INT", 0x25},
                                                  {"S_LD_INT", 0x26},
                                                  {"S_ST_INT", 0x27},
                                                  {"H_PREFETCH_M", 0x28},
                                                  {"H_PREFETCH_V", 0x29},
                                                  {"H_STORE_V", 0x2A},
                                                  {"C_SET_ADDR_REG", 0x2B},
                                                  {"C_SET_SCALE_REG", 0x2C},
                                                  {"C_SET_STRIDE_REG", 0x2D},
                                                  {"C_SET_V_MASK_REG", 0x2E},
                                                  {"C_LOOP_START", 0x2F},
                                                  {"C_LOOP_END", 0x30},
                                                  {"V_PS_V", 0x31},
                                                  {"V_SHFT_V", 0x32},
                                                  {"C_HADAMARD_TRANSFORM", 0x33},
                                                  {"C_BREAK", 0x34},
                                                  {"V_MAX_VF", 0x35},
                                                  {"V_MIN_VF", 0x36},
                                                  {"V_TOPK", 0x37},
                                                  {"V_RED_MAX_IDX", 0x38},
                                                  {"V_TOPK_MASK", 0x39},
                                                  {"V_SELECT_INT", 0x3A},
                                                  {"S_LI_FP", 0x3B},
                                                  {"M_SUM", 0x3C},
                                                  {"C_BNZ", 0x3D},
                                                  {"C_FENCE", 0x3E},
                                                  {"C_SET_CSR", 0x3F}};
  std::set<int> covered;
  for (const auto& [name, opcode] : expected) {
    const auto rows = find_mnemonic(name);
    ASSERT_FALSE(rows.empty()) << name;
    EXPECT_EQ(rows.front()->opcode, opcode) << name;
    covered.insert(opcode);
  }
  EXPECT_EQ(covered.size(), 63u) << "every opcode but 0 has an instruction";
}

// Words computed by hand from the field positions of docs/guide/isa.md.
TEST(Encoding, KnownWords) {
  using enum Field;
  EXPECT_EQ(word_of(make(Op::M_MM, {{kRs1, 2}, {kRs2, 4}})), 0x01u | 2u << 10 | 4u << 14);
  EXPECT_EQ(word_of(make(Op::S_ADDI_INT, {{kRd, 1}, {kRs1, 0}, {kImm18, 128}})), 0x22u | 1u << 6 | 128u << 14);
  EXPECT_EQ(word_of(make(Op::S_LUI_INT, {{kRd, 3}, {kImm22, 0x3fffff}})), 0x25u | 3u << 6 | 0x3fffffu << 10);
  EXPECT_EQ(word_of(make(Op::V_SUB_VF, {{kRd, 2}, {kRs1, 1}, {kRs3, 1}, {kFunct, 1}})),
            0x10u | 2u << 6 | 1u << 10 | 1u << 18 | 1u << 22);
  EXPECT_EQ(word_of(make(Op::H_PREFETCH_M, {{kRd, 1}, {kRs1, 2}, {kRs2, 3}, {kRs3, 1}, {kFunct, 1}, {kTag, 5}})),
            0x28u | 1u << 6 | 2u << 10 | 3u << 14 | 1u << 18 | 1u << 22 | 5u << 26);
  EXPECT_EQ(word_of(make(Op::C_LOOP_START, {{kRd, 15}, {kImm22, 7}})), 0x2fu | 15u << 6 | 7u << 10);
  EXPECT_EQ(word_of(make(Op::S_MAP_V_FP_LEN, {{kRd, 1}, {kRs1, 2}, {kRs2, 3}})),
            0x20u | 1u << 6 | 2u << 10 | 3u << 14 | 1u << 31);
  EXPECT_EQ(word_of(make(Op::S_LI_FP, {{kRd, 1}, {kImm16, 0xff80}})), 0x3bu | 1u << 6 | 0xff80u << 14);
  EXPECT_EQ(word_of(make(Op::S_MV_FP, {{kRd, 1}, {kRs1, 2}})), 0x3bu | 1u << 6 | 2u << 10 | 1u << 30);
  EXPECT_EQ(word_of(make(Op::V_RED_SUM_SEG, {{kRd, 1}, {kRs1, 2}})), 0x15u | 1u << 6 | 2u << 10 | 1u << 22);
  EXPECT_EQ(word_of(make(Op::C_BNZ, {{kRd, 1}, {kImm18, 0x3ffff}})), 0x3du | 1u << 6 | 0x3ffffu << 14);
  EXPECT_EQ(word_of(make(Op::V_RED_MAX_IDX, {{kRd, 5}, {kRs1, 3}, {kRs2, 8}, {kRs3, 1}})),
            0x38u | 5u << 6 | 3u << 10 | 8u << 14 | 1u << 18);
  EXPECT_EQ(word_of(make(Op::V_RED_DRAW, {{kRd, 5}, {kRs1, 3}, {kRs2, 8}, {kRs3, 1}, {kFunct, 7}, {kTag, 6}})),
            0x38u | 5u << 6 | 3u << 10 | 8u << 14 | 1u << 18 | 7u << 22 | 6u << 26 | 1u << 30);
  EXPECT_EQ(word_of(make(Op::C_BREAK, {})), 0x34u);
}

TEST(Encoding, TextForms) {
  using enum Field;
  EXPECT_EQ(to_text(make(Op::M_MM, {{kRs1, 2}, {kRs2, 4}})), "M_MM 0, gp2, gp4");
  EXPECT_EQ(to_text(make(Op::C_BNZ, {{kRd, 1}, {kImm18, 0x3ffff}})), "C_BNZ gp1, -1");
  EXPECT_EQ(to_text(make(Op::S_LI_FP, {{kRd, 1}, {kImm16, 0xff80}})), "S_LI_FP f1, -inf");
  EXPECT_EQ(to_text(make(Op::S_LI_FP, {{kRd, 1}, {kImm16, 0x3f80}})), "S_LI_FP f1, 1.0");
  EXPECT_EQ(to_text(make(Op::C_SET_CSR, {{kRd, 1}, {kImm18, 4}})), "C_SET_CSR gp1, bmm_rows");
  EXPECT_EQ(to_text(make(Op::V_ADD_VV, {{kRd, 1}, {kRs1, 2}, {kRs2, 3}})), "V_ADD_VV gp1, gp2, gp3");
  EXPECT_EQ(to_text(make(Op::V_SUB_VF, {{kRd, 1}, {kRs1, 2}, {kFunct, 1}})), "V_SUB_VF gp1, gp2, f0, 0, 1");
}

TEST(Encoding, RefusesWhatDoesNotExist) {
  using enum Field;
  EXPECT_FALSE(decode(0u));                 // opcode 0
  EXPECT_FALSE(decode(0x01u | 1u << 6));    // M_MM's rd must be 0
  EXPECT_FALSE(decode(0x21u | 1u << 18));   // S_ADD_INT has no rs3
  EXPECT_FALSE(decode(0x17u | 8u << 6));    // f8
  EXPECT_FALSE(decode(0x28u | 9u << 14));   // a9
  EXPECT_FALSE(decode(0x15u | 2u << 22));   // V_RED_SUM function 2
  EXPECT_FALSE(decode(0x3fu | 99u << 14));  // control register 99
  EXPECT_FALSE(decode(0x0du | 2u << 18));   // rmask 2
  EXPECT_FALSE(encode(make(Op::S_ADDI_INT, {{kImm18, 1u << 18}})));
  EXPECT_FALSE(encode(make(Op::S_ADD_FP, {{kRd, 8}})));
  for (const std::uint32_t beyond : {16u, 255u, 256u, 257u, 1u << 20})
    EXPECT_FALSE(encode(make(Op::S_ADD_INT, {{kRd, beyond}}))) << beyond;
  const auto unknown = decode(0x15u | 2u << 22);
  EXPECT_NE(unknown.error().what.find("function code"), std::string::npos);
}

// Every word is either refused or equals the encoding of its decoding.
TEST(Encoding, DecodeThenEncodeIsTheIdentity) {
  std::uint32_t state = 12345;
  int decoded = 0;
  for (int i = 0; i < 400000; ++i) {
    state = state * 1664525u + 1013904223u;
    // Sparse words are valid more often: so half of them are the AND of two draws.
    std::uint32_t word = state ^ (state >> 15);
    if (i % 2 == 0) word &= (state * 2654435761u) | 0x3f;
    const auto instruction = decode(word);
    if (!instruction) continue;
    ++decoded;
    EXPECT_EQ(word_of(*instruction), word);
  }
  EXPECT_GT(decoded, 20000);
}

std::string read_source(const std::string& path) {
  std::ifstream file(std::string(DLLM_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Generated, ManualIsCurrent) {
  EXPECT_EQ(read_source("docs/guide/isa.md"), isa_markdown())
      << "regenerate: dllm npu isa --format md > docs/guide/isa.md";
}

TEST(Generated, SystemVerilogPackageIsCurrent) {
  EXPECT_EQ(read_source("rtl/dllm_isa_pkg.sv"), isa_systemverilog())
      << "regenerate: dllm npu isa --format sv > rtl/dllm_isa_pkg.sv";
}

TEST(Generated, JsonHoldsEveryRow) {
  EXPECT_EQ(isa_json()["instructions"].size(), static_cast<std::size_t>(kOpCount));
  EXPECT_EQ(isa_json()["control_registers"].size(), static_cast<std::size_t>(kCsrCount));
}

TEST(Csr, NumbersAreTheirPlaces) {
  for (int i = 0; i < kCsrCount; ++i) {
    EXPECT_EQ(static_cast<int>(csr_table()[static_cast<std::size_t>(i)].csr), i);
    EXPECT_EQ(find_csr(csr_table()[static_cast<std::size_t>(i)].name), find_csr(static_cast<std::uint32_t>(i)));
  }
}

}  // namespace
}  // namespace dllm::npu
