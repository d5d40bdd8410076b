#pragma once

#include <string_view>

#include "constrain/pattern.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// Where a regular expression has to match.
enum class RegexScope {
  kWhole,   ///< the whole text; ^ and $ change nothing
  kSearch,  ///< anywhere, unless ^ or $ say otherwise (JSON Schema's "pattern")
};

/// Parses a regular expression in UTF-8: literals, escapes (\n \t \r \f \v \0 \xHH \uHHHH and punctuation), `.` (every
/// character but \n, \r, U+2028 and U+2029), classes with ranges, negation and \d \w \s \D \W \S as in ECMA-262 (the
/// digits and words of ASCII, the spaces of Unicode and U+FEFF), groups,
/// alternatives, * + ? {m} {m,} {m,n} (a ? after them changes nothing, as only whole matches count), ^ and $ at the
/// ends of the outermost alternatives. Errors: kUsage with the byte in `where` (syntax; look-around, back references,
/// word boundaries, flags and Unicode properties, which are not supported).
Expected<PatternPtr> parse_regex(std::string_view text, RegexScope scope = RegexScope::kWhole);

}  // namespace dllm::constrain
