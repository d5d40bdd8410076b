#include "npu_core/isa/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "npu_core/isa/csr.h"
#include "npu_core/isa/isa.h"

namespace dllm::npu {
namespace {

std::string_view kind_name(OperandKind kind) {
  constexpr std::string_view names[] = {"gp", "f", "a", "0", "unsigned", "signed", "bf16", "csr"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view access_name(Access access) {
  constexpr std::string_view names[] = {"none", "read", "write", "read_write"};
  return names[static_cast<std::size_t>(access)];
}

std::string operand_form(const Operand& operand) {
  if (operand.kind == OperandKind::kGp || operand.kind == OperandKind::kFp || operand.kind == OperandKind::kAddr)
    return fmt::format("{}:{}", kind_name(operand.kind), operand.name);
  return std::string(operand.name);
}

std::string form(const InstructionInfo& row) {
  std::string text(row.mnemonic);
  for (std::size_t i = 0; i < row.operand_count; ++i) {
    const std::string name = operand_form(row.operands[i]);
    text += (i == 0 ? " " : ", ") + (row.operands[i].optional ? "[" + name + "]" : name);
  }
  return text;
}

/// The alternative forms; "" if there is only one.
std::string also(const InstructionInfo& row) {
  std::string text;
  if (!row.alias.empty()) text = fmt::format("Also named `{}`.", row.alias);
  if (row.other_order_count == 0) return text;
  std::string other(row.mnemonic);
  for (const std::uint8_t index : row.other_order_list())
    other += (index == row.other_order[0] ? " " : ", ") + operand_form(row.operands[index]);
  return text + (text.empty() ? "" : " ") + fmt::format("Also written `{}`.", other);
}

std::string bits(const Operand& operand) {
  const FieldInfo& f = field_info(operand.field);
  return fmt::format("{} {}:{}", operand.name, f.low + f.width - 1, f.low);
}

std::string encoding(const InstructionInfo& row) {
  std::string text;
  for (const Operand& operand : row.operand_list()) {
    if (operand.kind == OperandKind::kZero) continue;
    text += (text.empty() ? "" : ", ") + bits(operand);
  }
  if (row.select_mask != 0) {
    const int low = std::countr_zero(row.select_mask);
    const int high = 31 - std::countl_zero(row.select_mask);
    text += fmt::format("{}{}:{} = {}", text.empty() ? "" : ", ", high, low, row.select_value >> low);
  }
  return text.empty() ? "–" : text;
}

std::string memory_text(const InstructionInfo& row) {
  std::string text;
  for (const MemoryUse& use : row.memory_list()) {
    std::string_view arrow = use.access == Access::kRead    ? "reads"
                             : use.access == Access::kWrite ? "writes"
                                                            : "updates";
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", arrow, name_of(use.space));
  }
  return text.empty() ? "–" : text;
}

std::vector<const InstructionInfo*> rows_by_opcode() {
  std::vector<const InstructionInfo*> rows;
  for (const InstructionInfo& row : instruction_table()) rows.push_back(&row);
  std::ranges::stable_sort(rows, {},
                           [](const InstructionInfo* row) { return std::pair(row->opcode, row->select_value); });
  return rows;
}

constexpr std::string_view kIntroduction = R"(# Instruction set

<!-- Generated from src/npu_core/isa by `dllm npu isa --format md`. Do not edit. -->

Instructions are 32-bit words, stored little endian. Bits 5:0 are the opcode; the tables give the other fields.
Bits that no field names must be 0. Opcodes 0x01-0x37 are binary compatible with PLENA; 0x38-0x3F, the function codes
of V_RED_*_SEG, V_MAX_VV, V_MIN_VV, V_SHFT_V modes, the length form of S_MAP_V_FP and the tags of transfers are the
diffusion extension. Opcode 0 is invalid.

State: gp0-gp15 (32-bit integers, gp0 is 0), f0-f7 (BF16, f0 is 0), a0-a7 (64-bit byte addresses in HBM). On devices
with FP16 activations (phones), vector and scalar units compute in FP16: read FP16 where this page says BF16. VRAM, MRAM,
FP_MEM and INT_MEM never alias. VRAM and MRAM addresses count elements; FP_MEM and INT_MEM addresses count words.
Operands in brackets may be left out and are then 0. docs/guide/npu.md explains memories, number formats and traps.

)";

}  // namespace

std::string isa_markdown() {
  std::string text(kIntroduction);
  text += "## Opcodes\n\n| opcode | instruction | class | unit | latency rule |\n|---|---|---|---|---|\n";
  for (const InstructionInfo* row : rows_by_opcode())
    text += fmt::format("| 0x{:02X} | `{}` | {} | {} | {} |\n", row->opcode, form(*row), name_of(row->cls),
                        name_of(row->unit), name_of(row->latency));
  for (const Class cls :
       {Class::kMatrix, Class::kVector, Class::kScalar, Class::kHbm, Class::kControl, Class::kSampling}) {
    text += fmt::format("\n## Class {}\n", name_of(cls));
    for (const InstructionInfo* row : rows_by_opcode()) {
      if (row->cls != cls) continue;
      text += fmt::format("\n### {}\n\n`{}`\n\n{}\n\n", row->mnemonic, form(*row), row->effect);
      if (!row->note.empty()) text += fmt::format("{}\n\n", row->note);
      if (const std::string other = also(*row); !other.empty()) text += other + "\n\n";
      text += fmt::format("Opcode 0x{:02X}; fields: {}; memory: {}.\n", row->opcode, encoding(*row), memory_text(*row));
    }
  }
  text +=
      "\n## Control registers\n\nSet by C_SET_CSR, by name or number.\n\n"
      "| number | name | unit | reset | meaning |\n|---|---|---|---|---|\n";
  for (const CsrInfo& csr : csr_table())
    text += fmt::format("| {} | `{}` | {} | {} | {} |\n", static_cast<int>(csr.csr), csr.name, csr.unit, csr.reset,
                        csr.doc);
  return text;
}

std::string isa_systemverilog() {
  std::string text =
      "// Generated from src/npu_core/isa by `dllm npu isa --format sv`. Do not edit.\n"
      "package dllm_isa_pkg;\n\n"
      "  localparam int InstructionWidth = 32;\n  localparam int OpcodeWidth = 6;\n";
  text += fmt::format(
      "  localparam int GpRegisters = {};\n  localparam int FpRegisters = {};\n  localparam int AddressRegisters = "
      "{};\n\n",
      kGpRegisters, kFpRegisters, kAddressRegisters);
  text += "  // Fields: least significant bit and width.\n";
  for (int i = 0; i < kFieldCount; ++i) {
    const FieldInfo& f = field_info(static_cast<Field>(i));
    std::string name(f.name);
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
    text += fmt::format("  localparam int {}Low = {};\n  localparam int {}Width = {};\n", name, f.low, name, f.width);
  }
  text += "\n  typedef enum logic [5:0] {\n    OP_INVALID = 6'h00";
  int last = 0;
  for (const InstructionInfo* row : rows_by_opcode()) {
    if (row->opcode == last) continue;
    last = row->opcode;
    text += fmt::format(",\n    OP_{} = 6'h{:02X}", row->mnemonic, row->opcode);
  }
  text += "\n  } opcode_e;\n\n  // Rows that share an opcode: instruction & MASK == VALUE.\n";
  for (const InstructionInfo* row : rows_by_opcode()) {
    if (row->select_mask == 0) continue;
    const std::string_view suffix = row->op == Op::S_MAP_V_FP_LEN ? "_LEN" : "";
    text += fmt::format(
        "  localparam logic [31:0] SEL_{0}{1}_MASK = 32'h{2:08X};\n  localparam logic [31:0] SEL_{0}{1}_VALUE = "
        "32'h{3:08X};\n",
        row->mnemonic, suffix, row->select_mask | 0x3f, row->select_value | row->opcode);
  }
  text += "\n  typedef enum logic [4:0] {\n";
  for (const CsrInfo& csr : csr_table()) {
    std::string name(csr.name);
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    text += fmt::format("    CSR_{} = 5'd{}{}\n", name, static_cast<int>(csr.csr),
                        static_cast<int>(csr.csr) + 1 < kCsrCount ? "," : "");
  }
  return text + "  } csr_e;\n\nendpackage\n";
}

nlohmann::ordered_json isa_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const InstructionInfo* row : rows_by_opcode()) {
    nlohmann::ordered_json operands = nlohmann::ordered_json::array();
    for (const Operand& operand : row->operand_list()) {
      const FieldInfo& f = field_info(operand.field);
      operands.push_back({{"name", operand.name},
                          {"kind", kind_name(operand.kind)},
                          {"access", access_name(operand.access)},
                          {"low", f.low},
                          {"width", f.width},
                          {"optional", operand.optional}});
    }
    nlohmann::ordered_json memory = nlohmann::ordered_json::array();
    for (const MemoryUse& use : row->memory_list())
      memory.push_back({{"space", name_of(use.space)}, {"access", access_name(use.access)}});
    rows.push_back(
        {{"mnemonic", row->mnemonic},
         {"opcode", row->opcode},
         {"select_mask", row->select_mask},
         {"select_value", row->select_value},
         {"class", name_of(row->cls)},
         {"unit", name_of(row->unit)},
         {"latency", name_of(row->latency)},
         {"operands", operands},
         {"memory", memory},
         {"alias", row->alias.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(row->alias)},
         {"other_order", row->other_order_list()},
         {"effect", row->effect},
         {"note", row->note}});
  }
  nlohmann::ordered_json csrs = nlohmann::ordered_json::array();
  for (const CsrInfo& csr : csr_table())
    csrs.push_back({{"number", static_cast<int>(csr.csr)},
                    {"name", csr.name},
                    {"unit", csr.unit},
                    {"reset", csr.reset},
                    {"doc", csr.doc}});
  return {{"instructions", rows}, {"control_registers", csrs}};
}

}  // namespace dllm::npu
