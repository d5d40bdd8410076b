#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "dllm/error.h"
#include "npu_core/isa/isa.h"

namespace dllm::npu {

/// A decoded instruction. Register numbers, function codes and tags that the form does not have are 0. A form has at
/// most one immediate, so all immediate fields read the same value. Programs have up to millions of instructions: the
/// time to write and to read them is that of their memory, so an instruction has 12 bytes.
struct Instruction {
  Op op = Op::C_BREAK;
  std::array<std::uint8_t, kSmallFields> small = {};  ///< kRd, kRs1, kRs2, kRs3, kFunct, kTag
  std::uint32_t immediate = 0;

  std::uint32_t get(Field field) const { return is_immediate(field) ? immediate : small[small_index(field)]; }
  /// A value beyond a small field's 4 bits stays beyond them, so that encode() refuses it.
  void set(Field field, std::uint32_t value) {
    if (is_immediate(field))
      immediate = value;
    else
      small[small_index(field)] = static_cast<std::uint8_t>(value > 0xff ? 0xff : value);
  }
  /// A kSint field as a signed number.
  std::int32_t get_signed(Field field) const;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

/// Errors: a value too large for its field, or not allowed for the operand. No `where`: the caller knows the place.
Expected<std::uint32_t> encode(const Instruction& instruction);

/// Errors: opcode 0, an unknown function code, set bits that no operand uses, a register that does not exist, a literal
/// beyond its limit.
Expected<Instruction> decode(std::uint32_t word);

/// One line of assembly, which gives the same word. Optional trailing operands that are 0 are omitted. `half_scalars`:
/// numbers of S_LI_FP are FP16 (Program::half_scalars).
std::string to_text(const Instruction& instruction, bool half_scalars = false);

/// A literal of S_LI_FP, BF16 or, `half`, FP16: a number that reads back exactly, "inf", "-inf", or "0x7fc1" for NaNs.
std::string scalar_text(std::uint16_t bits, bool half = false);

}  // namespace dllm::npu
