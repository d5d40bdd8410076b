#include "npu_core/assembler/operand_parser.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

#include "base/parse_text.h"
#include "base/try.h"
#include "npu_core/isa/csr.h"
#include "numerics/half.h"

namespace dllm::npu {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// A register operand, or the literal 0 for gp0 and f0, which PLENA's code writes for unused operands.
Expected<std::uint32_t> parse_register_operand(const Expander& context, const SourceLine& line, std::size_t column,
                                               std::string_view text, const Operand& operand) {
  struct Bank {
    std::string_view expected;
    int base, count;
  };
  const Bank bank = operand.kind == OperandKind::kGp   ? Bank{"gp0 to gp15", 0, kGpRegisters}
                    : operand.kind == OperandKind::kFp ? Bank{"f0 to f7", kFpBase, kFpRegisters}
                                                       : Bank{"a0 to a7", kAddressBase, kAddressRegisters};
  const int number = parse_register(text);
  if (number >= bank.base && number < bank.base + bank.count) return static_cast<std::uint32_t>(number - bank.base);
  if (number == -2)
    return context.error(line, column, fmt::format("there is no register '{}'", text),
                         fmt::format("{} exist", bank.expected));
  if (number < 0 && text == "0" && operand.kind != OperandKind::kAddr && operand.access == Access::kRead) return 0u;
  return context.error(line, column,
                       fmt::format("operand {} is '{}', expected a register {}", operand.name, text, bank.expected));
}

/// The bits of a scalar in BF16 or, `half`, in FP16.
Expected<std::uint32_t> parse_scalar(const Expander& context, const SourceLine& line, std::size_t column,
                                     std::string_view text, bool half) {
  const std::string word = lower(text);
  const std::uint32_t infinity = half ? 0x7c00u : 0x7f80u;
  if (word == "inf" || word == "+inf") return infinity;
  if (word == "-inf") return infinity | 0x8000u;
  if (word == "nan") return half ? 0x7e00u : 0x7fc0u;
  if (word.starts_with("0x")) {
    DLLM_TRY(const std::int64_t bits, context.value(line, column, text));
    if (bits > 0xffff) return context.error(line, column, "a scalar has 16 bits");
    return static_cast<std::uint32_t>(bits);
  }
  std::string_view digits = std::string_view(word).substr(word.starts_with('+') && !word.starts_with("+-") ? 1 : 0);
  if (digits.find_first_not_of("0123456789.e+-") != digits.npos) digits = {};
  float value = 0.0f;
  if (const auto number = parse_float(digits)) {
    value = *number;
  } else if (const auto beyond = parse_double(digits)) {
    value = static_cast<float>(*beyond);  // infinite, or zero
  } else {
    DLLM_TRY(const std::int64_t constant, context.value(line, column, text));
    value = static_cast<float>(constant);
  }
  const std::uint16_t bits = half ? f32_to_f16(value) : f32_to_bf16(value);
  if ((bits & 0x7fffu) == infinity)
    return context.error(line, column, fmt::format("{} is beyond {}'s range", text, half ? "FP16" : "BF16"),
                         "write inf or -inf");
  return bits;
}

Expected<std::uint32_t> parse_unsigned(const Expander& context, const SourceLine& line, std::size_t column,
                                       std::string_view text, const Operand& operand) {
  if (parse_register(text) == 0) return 0u;  // gp0 instead of a literal 0, as in PLENA's own examples
  if (parse_register(text) != -1)
    return context.error(line, column, fmt::format("operand {} is a literal, not a register", operand.name));
  DLLM_TRY(const std::int64_t value, context.value(line, column, text));
  if (value < 0)
    return context.error(line, column, fmt::format("operand {} is {}, but it is unsigned", operand.name, value),
                         "subtract with S_SUB_INT");
  if (value > operand.limit)
    return context.error(line, column,
                         fmt::format("operand {} is {}, its largest value is {}", operand.name, value, operand.limit),
                         operand.limit > 0xffff ? "load it into a register: li gpN, VALUE" : "");
  return static_cast<std::uint32_t>(value);
}

Expected<std::uint32_t> parse_offset(const Expander& context, const SourceLine& line, std::size_t column,
                                     std::string_view text, const Operand& operand, std::string& label) {
  if (is_identifier(text) && !context.constants().contains(text)) {
    label = std::string(text);
    return 0u;
  }
  DLLM_TRY(const std::int64_t value, context.value(line, column, text));
  const std::int64_t bound = std::int64_t{1} << (field_info(operand.field).width - 1);
  if (value < -bound || value >= bound)
    return context.error(line, column,
                         fmt::format("operand {} is {}, outside {}..{}", operand.name, value, -bound, bound - 1));
  return static_cast<std::uint32_t>(value) & operand.limit;
}

}  // namespace

int parse_register(std::string_view text) {
  const std::string word = lower(text);
  struct Bank {
    std::string_view prefix;
    int base, count;
  };
  for (const Bank& bank :
       {Bank{"gp", 0, kGpRegisters}, Bank{"f", kFpBase, kFpRegisters}, Bank{"a", kAddressBase, kAddressRegisters}}) {
    if (!word.starts_with(bank.prefix) || word.size() == bank.prefix.size()) continue;
    const std::string digits = word.substr(bank.prefix.size());
    // d-PLENA's generators number registers in hexadecimal: gpE is gp14. Two digits are decimal, as in PLENA.
    if (bank.prefix == "gp" && digits.size() == 1 && digits[0] >= 'a' && digits[0] <= 'f') return 10 + digits[0] - 'a';
    if (digits.find_first_not_of("0123456789") != std::string::npos) continue;
    const int number =
        digits.size() > 3 || (digits.size() > 1 && digits[0] == '0') ? bank.count : std::atoi(digits.c_str());
    return number < bank.count ? bank.base + number : -2;
  }
  return -1;
}

Expected<std::uint32_t> parse_operand(const Expander& context, const SourceLine& line, std::size_t column,
                                      std::string_view text, const Operand& operand, bool half, std::string& label) {
  switch (operand.kind) {
    case OperandKind::kGp:
    case OperandKind::kFp:
    case OperandKind::kAddr:
      return parse_register_operand(context, line, column, text, operand);
    case OperandKind::kBf16:
      return parse_scalar(context, line, column, text, half);
    case OperandKind::kSint:
      return parse_offset(context, line, column, text, operand, label);
    case OperandKind::kCsr: {
      if (const CsrInfo* csr = find_csr(text)) return static_cast<std::uint32_t>(csr->csr);
      if (is_identifier(text) && !context.constants().contains(text))
        return context.error(line, column, fmt::format("there is no control register '{}'", text),
                             "docs/guide/isa.md lists them");
      DLLM_TRY(const std::int64_t number, context.value(line, column, text));
      if (number < 0 || number >= kCsrCount)
        return context.error(line, column, fmt::format("there is no control register {}", number),
                             fmt::format("0 to {} exist", kCsrCount - 1));
      return static_cast<std::uint32_t>(number);
    }
    case OperandKind::kZero: {
      if (text == "0" || parse_register(text) == 0 || parse_register(text) == kFpBase) return 0u;
      return context.error(line, column, fmt::format("this operand is unused and must be 0, not '{}'", text));
    }
    case OperandKind::kUint:
      break;
  }
  return parse_unsigned(context, line, column, text, operand);
}

}  // namespace dllm::npu
