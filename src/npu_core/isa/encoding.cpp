#include "npu_core/isa/encoding.h"

#include <fmt/format.h>

#include <cmath>

#include "base/try.h"
#include "npu_core/isa/csr.h"
#include "numerics/half.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kOpcodeMask = 0x3f;

std::uint32_t field_mask(Field field) {
  const FieldInfo& f = field_info(field);
  return ((f.width == 32 ? 0u : 1u << f.width) - 1u) << f.low;
}

Error invalid(std::string what, std::string hint = "") {
  return {ErrorCode::kInvalidFile, std::move(what), "", std::move(hint)};
}

/// Whether the value fits its field, and the register or literal exists; a field's width may allow more.
bool valid(const Operand& operand, const FieldInfo& field, std::uint32_t value) {
  if ((static_cast<std::uint64_t>(value) >> field.width) != 0) return false;
  switch (operand.kind) {
    case OperandKind::kGp:
      return value < kGpRegisters;
    case OperandKind::kFp:
      return value < kFpRegisters;
    case OperandKind::kAddr:
      return value < kAddressRegisters;
    case OperandKind::kZero:
      return value == 0;
    case OperandKind::kUint:
    case OperandKind::kBf16:
      return value <= operand.limit;
    case OperandKind::kCsr:
      return find_csr(value) != nullptr;
    case OperandKind::kSint:
      break;
  }
  return true;
}

/// Why an operand is not valid.
Error operand_error(const InstructionInfo& row, const Operand& operand, std::uint32_t value) {
  const auto out_of = [&](std::string_view kind, std::uint32_t limit) {
    return invalid(
        fmt::format("{}: operand {} is {}, but {} at most {}", row.mnemonic, operand.name, value, kind, limit));
  };
  const FieldInfo& field = field_info(operand.field);
  if ((static_cast<std::uint64_t>(value) >> field.width) != 0)
    return invalid(
        fmt::format("{}: operand {} = {} does not fit into {} bits", row.mnemonic, operand.name, value, field.width));
  switch (operand.kind) {
    case OperandKind::kGp:
      return out_of("integer registers go to", kGpRegisters - 1);
    case OperandKind::kFp:
      return out_of("FP registers go to", kFpRegisters - 1);
    case OperandKind::kAddr:
      return out_of("address registers go to", kAddressRegisters - 1);
    case OperandKind::kCsr:
      return out_of("control registers go to", kCsrCount - 1);
    case OperandKind::kZero:
      return invalid(fmt::format("{}: its {} field is unused and must be 0, not {}", row.mnemonic, field.name, value));
    case OperandKind::kUint:
    case OperandKind::kBf16:
    case OperandKind::kSint:
      break;
  }
  return out_of("it may be", operand.limit);
}

std::uint32_t used_bits(const InstructionInfo& row) {
  std::uint32_t used = kOpcodeMask | row.select_mask;
  for (const Operand& operand : row.operand_list()) used |= field_mask(operand.field);
  return used;
}

const InstructionInfo* select(std::uint32_t word) {
  for (const InstructionInfo& row : instruction_table()) {
    if (row.opcode != (word & kOpcodeMask)) continue;
    if ((word & row.select_mask) == row.select_value) return &row;
  }
  return nullptr;
}

std::string operand_text(const Operand& operand, const Instruction& instruction, bool half_scalars) {
  const std::uint32_t value = instruction.get(operand.field);
  switch (operand.kind) {
    case OperandKind::kGp:
      return fmt::format("gp{}", value);
    case OperandKind::kFp:
      return fmt::format("f{}", value);
    case OperandKind::kAddr:
      return fmt::format("a{}", value);
    case OperandKind::kSint:
      return fmt::format("{}", instruction.get_signed(operand.field));
    case OperandKind::kBf16:
      return scalar_text(static_cast<std::uint16_t>(value), half_scalars);
    case OperandKind::kCsr:
      if (const CsrInfo* csr = find_csr(value)) return std::string(csr->name);
      break;
    case OperandKind::kZero:
    case OperandKind::kUint:
      break;
  }
  return fmt::format("{}", value);
}

}  // namespace

std::int32_t Instruction::get_signed(Field field) const {
  const int width = field_info(field).width;
  const std::uint32_t sign = 1u << (width - 1);
  return static_cast<std::int32_t>((get(field) ^ sign) - sign);
}

Expected<std::uint32_t> encode(const Instruction& instruction) {
  const InstructionInfo& row = info(instruction.op);
  std::uint32_t word = row.opcode | row.select_value;
  for (const Operand& operand : row.operand_list()) {
    const std::uint32_t value = instruction.get(operand.field);
    const FieldInfo& f = field_info(operand.field);
    if (!valid(operand, f, value)) return operand_error(row, operand, value);
    word |= value << f.low;
  }
  return word;
}

Expected<Instruction> decode(std::uint32_t word) {
  const InstructionInfo* row = select(word);
  if (row == nullptr) {
    const std::uint32_t opcode = word & kOpcodeMask;
    for (const InstructionInfo& other : instruction_table())
      if (other.opcode == opcode)
        return invalid(fmt::format("word 0x{:08x}: opcode 0x{:02x} ({}) with an unknown function code", word, opcode,
                                   other.mnemonic));
    return invalid(fmt::format("word 0x{:08x}: opcode 0x{:02x} is not an instruction", word, opcode),
                   "is this a program, and its byte order little endian?");
  }
  if (const std::uint32_t extra = word & ~used_bits(*row); extra != 0)
    return invalid(
        fmt::format("word 0x{:08x}: {} leaves bits 0x{:08x} unused, they must be 0", word, row->mnemonic, extra));
  Instruction instruction;
  instruction.op = row->op;
  for (const Operand& operand : row->operand_list()) {
    const FieldInfo& f = field_info(operand.field);
    const std::uint32_t value = (word & field_mask(operand.field)) >> f.low;
    if (!valid(operand, f, value)) return operand_error(*row, operand, value);
    instruction.set(operand.field, value);
  }
  return instruction;
}

std::string to_text(const Instruction& instruction, bool half_scalars) {
  const InstructionInfo& row = info(instruction.op);
  std::size_t count = row.operand_count;
  while (count > 0 && row.operands[count - 1].optional && instruction.get(row.operands[count - 1].field) == 0) --count;
  std::string text(row.mnemonic);
  for (std::size_t i = 0; i < count; ++i)
    text += (i == 0 ? " " : ", ") + operand_text(row.operands[i], instruction, half_scalars);
  return text;
}

std::string scalar_text(std::uint16_t bits, bool half) {
  const float value = half ? f16_to_f32(bits) : bf16_to_f32(bits);
  if (std::isnan(value)) return fmt::format("0x{:04x}", bits);
  if (std::isinf(value)) return value < 0.0f ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);  // the shortest decimal that reads back as the same float
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace dllm::npu
