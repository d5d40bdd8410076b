#pragma once

#include <cstdint>
#include <vector>

#include "constrain/pattern.h"
#include "constrain/regex.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// A part of a regular expression. What it asserts about the text around it is no pattern: language_of() makes it part
/// of the language of the whole.
struct RegexTerm {
  enum class Kind : std::uint8_t {
    kPlain,  ///< asserts nothing
    kSequence,
    kEither,
    kRepeat,
    kAhead,     ///< (?=X): the rest of the text begins with it
    kNotAhead,  ///< (?!X)
    kStart,     ///< ^
    kEnd,       ///< $
  };
  Kind kind = Kind::kPlain;
  PatternPtr plain{};              ///< of kPlain
  std::vector<RegexTerm> parts{};  ///< of the others; kRepeat and looks ahead: one
  std::int32_t least = 0, most = 0;
};

RegexTerm plain_term(PatternPtr pattern);
RegexTerm sequence_term(std::vector<RegexTerm> parts);
RegexTerm either_term(std::vector<RegexTerm> parts);
RegexTerm repeat_term(RegexTerm part, std::int32_t least, std::int32_t most);

/// The texts that an expression matches, as a pattern without assertions. Errors: kUsage (an assertion in a part that
/// is repeated without end; too many of them).
Expected<PatternPtr> language_of(const RegexTerm& term, RegexScope scope);

}  // namespace dllm::constrain
