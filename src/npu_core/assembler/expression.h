#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::npu {

/// Named constants of an assembly file.
using Constants = std::map<std::string, std::int64_t, std::less<>>;

/// The error and its offset in the text.
struct ExpressionError {
  std::string what;
  std::size_t offset = 0;
};

/// Integer arithmetic of constants: literals (decimal, 0x, 0b), names, unary - ~, binary * / % + - << >> & ^ | with C's
/// precedence, parentheses. 64 bits, overflow is an error. Division truncates.
struct ExpressionResult {
  std::int64_t value = 0;
  ExpressionError error;  ///< `what` is empty on success
  bool ok() const { return error.what.empty(); }
};
ExpressionResult evaluate(std::string_view text, const Constants& constants);

bool is_identifier(std::string_view text);

}  // namespace dllm::npu
