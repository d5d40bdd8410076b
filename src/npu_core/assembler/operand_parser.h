#pragma once

#include <string>
#include <string_view>

#include "npu_core/assembler/expander.h"
#include "npu_core/isa/isa.h"

namespace dllm::npu {

/// Parses one operand as its table entry requires. `column`: of the operand's first character.
/// `half`: a scalar's number becomes FP16, otherwise BF16. A kSint operand that is an identifier but not a constant is
/// a label: reported through `label`, value 0.
Expected<std::uint32_t> parse_operand(const Expander& context, const SourceLine& line, std::size_t column,
                                      std::string_view text, const Operand& operand, bool half, std::string& label);

/// 0-15 for "gp7" (any case), 16 + n for "f3", 32 + n for "a2"; -1: not a register; -2: a register that does not exist.
int parse_register(std::string_view text);
inline constexpr int kFpBase = 16, kAddressBase = 32;

}  // namespace dllm::npu
