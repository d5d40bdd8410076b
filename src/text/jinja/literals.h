#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::jinja {

/// The value of a string literal, without its quotes: Python's escapes.
Expected<std::string> unescape(std::string_view body);

struct Number {
  bool is_float = false;
  std::int64_t integer = 0;
  double real = 0;
  std::size_t size = 0;  ///< bytes consumed
};

/// The longest number at the start of `text`, which begins with a digit. `after_dot`: in `a.0.5` the 0 is not a float.
Expected<Number> parse_number(std::string_view text, bool after_dot);

}  // namespace dllm::jinja
