#pragma once

#include <initializer_list>

#include "npu_core/isa/isa.h"

// The vocabulary for table entries. Only the table_*.cpp files use it.

namespace dllm::npu {

/// An entry under construction; each function returns a changed copy, so that entries are single expressions.
struct Row : InstructionInfo {
  constexpr Row with(std::initializer_list<Operand> list) const {
    Row row = *this;
    for (const Operand& operand : list) row.operands[row.operand_count++] = operand;
    return row;
  }
  constexpr Row touches(std::initializer_list<MemoryUse> list) const {
    Row row = *this;
    for (const MemoryUse& use : list) row.memory[row.memory_count++] = use;
    return row;
  }
  constexpr Row reads(unsigned control) const {
    Row row = *this;
    row.control_reads = static_cast<std::uint16_t>(row.control_reads | control);
    return row;
  }
  constexpr Row writes(unsigned control) const {
    Row row = *this;
    row.control_writes = static_cast<std::uint16_t>(row.control_writes | control);
    return row;
  }
  constexpr Row doc(std::string_view effect_text, std::string_view note_text = {}) const {
    Row row = *this;
    row.effect = effect_text;
    row.note = note_text;
    return row;
  }
  /// The assembler also accepts this mnemonic.
  constexpr Row also_named(std::string_view name) const {
    Row row = *this;
    row.alias = name;
    return row;
  }
  /// The assembler also accepts the operands in this order.
  constexpr Row also_ordered(std::initializer_list<std::uint8_t> order) const {
    Row row = *this;
    for (const std::uint8_t index : order) row.other_order[row.other_order_count++] = index;
    return row;
  }
  /// Shares its opcode: bits `low`+`width`-1 .. `low` hold `value`.
  constexpr Row variant(int low, int width, std::uint32_t value) const {
    Row row = *this;
    row.select_mask |= ((1u << width) - 1u) << low;
    row.select_value |= value << low;
    return row;
  }
};

constexpr Row row(Op op, std::string_view mnemonic, std::uint8_t opcode, Class cls, Unit unit, Latency latency) {
  Row result{};
  result.op = op;
  result.mnemonic = mnemonic;
  result.opcode = opcode;
  result.cls = cls;
  result.unit = unit;
  result.latency = latency;
  return result;
}

// Operands. The name is the manual's; the letter before the register number shows the kind.
constexpr Operand gp_in(std::string_view name, Field f) { return {name, f, OperandKind::kGp, Access::kRead}; }
constexpr Operand gp_out(std::string_view name, Field f) { return {name, f, OperandKind::kGp, Access::kWrite}; }
constexpr Operand gp_inout(std::string_view name, Field f) { return {name, f, OperandKind::kGp, Access::kReadWrite}; }
constexpr Operand fp_in(std::string_view name, Field f) { return {name, f, OperandKind::kFp, Access::kRead}; }
constexpr Operand fp_out(std::string_view name, Field f) { return {name, f, OperandKind::kFp, Access::kWrite}; }
constexpr Operand fp_inout(std::string_view name, Field f) { return {name, f, OperandKind::kFp, Access::kReadWrite}; }
constexpr Operand addr_in(std::string_view name, Field f) { return {name, f, OperandKind::kAddr, Access::kRead}; }
constexpr Operand addr_out(std::string_view name, Field f) { return {name, f, OperandKind::kAddr, Access::kWrite}; }
constexpr Operand zero(Field f) { return {"0", f, OperandKind::kZero, Access::kNone}; }
constexpr Operand uint(std::string_view name, Field f, std::uint32_t limit) {
  return {name, f, OperandKind::kUint, Access::kNone, limit};
}
constexpr Operand optional(Operand operand) {
  operand.optional = true;
  return operand;
}
constexpr Operand rmask() { return optional(uint("rmask", Field::kRs3, 1)); }
constexpr Operand imm18() { return uint("imm", Field::kImm18, (1u << 18) - 1); }
constexpr Operand imm22() { return uint("imm", Field::kImm22, (1u << 22) - 1); }

constexpr MemoryUse load(Space space, Base base, Extent extent) { return {space, Access::kRead, base, extent}; }
constexpr MemoryUse store(Space space, Base base, Extent extent) { return {space, Access::kWrite, base, extent}; }
constexpr MemoryUse accumulate(Space space) { return {space, Access::kReadWrite, Base::kNone, Extent::kAccumulator}; }

std::span<const Row> matrix_rows();
std::span<const Row> vector_rows();
std::span<const Row> scalar_rows();
std::span<const Row> transfer_and_control_rows();

}  // namespace dllm::npu
