#pragma once

#include <string_view>

#include "constrain/pattern.h"

namespace dllm::constrain {

/// The texts of a `format`, or a part of them: every one is valid, and of bounded length. Null: the format is not
/// known, and restricts nothing (JSON Schema 2020-12, validation, 7.2.1).
PatternPtr string_format(std::string_view name);

/// How many characters the texts of a pattern have. `most`: kUnbounded, if there is no longest one.
struct TextLength {
  std::int64_t least = 0, most = 0;
};
TextLength text_length(const PatternPtr& pattern);

}  // namespace dllm::constrain
