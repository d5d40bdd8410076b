#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// Translates a pattern from Oniguruma's Ruby syntax, in which tokenizer.json's patterns are written, to PCRE2's with
/// PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE. The two agree on most of it; translated are
///
///     [a-z&&[^l]], [a[bc]]     intersections and nested classes, with look-aheads
///     \h, \H, \N, \O, (?m:.)   hexadecimal digits, not a newline, any character, dot that matches newlines
///     \s, \w, \b, [[:alpha:]]  Oniguruma's sets: no U+180E in \s, marks in \w
///     a{,2}, a{2}+, a{2}?      at most two; (a{2})+, which is not possessive; (a{2})?
///     a(?i)b|c                 a(?i:b|c)
///
/// Errors (kUnsupported) name what has no exact translation: \X, \y, references to groups, (?~...), properties of case
/// under (?i), ...; kInvalidFile: a pattern that is none in Oniguruma either.
Expected<std::string> from_oniguruma(std::string_view pattern);

}  // namespace dllm
