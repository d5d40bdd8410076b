#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dllm/error.h"

namespace dllm {

/// Reads a pattern from left to right; its errors name the pattern and the place.
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  bool done() const { return at_ >= pattern_.size(); }
  std::size_t at() const { return at_; }
  std::string_view rest() const { return pattern_.substr(at_); }
  std::string_view from(std::size_t begin) const { return pattern_.substr(begin, at_ - begin); }

  char peek() const { return pattern_[at_]; }  ///< not at the end
  char take() { return pattern_[at_++]; }      ///< not at the end
  void take_character();
  bool skip(char c);
  bool skip_text(std::string_view text);

  /// {n}, {n,}, {,m} or {n,m}: the bounds as text, the second one empty if there is none. nullopt, and nothing
  /// consumed: the brace is a character.
  Expected<std::optional<std::pair<std::string, std::string>>> interval();

  Error invalid(std::string_view what) const;
  Error unsupported(std::string_view what) const;

 private:
  std::string_view pattern_;
  std::size_t at_ = 0;
};

/// A character, or a set of them in the syntax of PCRE2's classes without the brackets.
struct ClassAtom {
  std::string text;
  bool set = false;
  bool negated = false;  ///< all characters but the set's
};

/// Oniguruma's \w and \s, where PCRE2's differ.
inline constexpr std::string_view kWordSet =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
/// What \w and \b have besides outside of classes, from Oniguruma's table for Latin-1.
inline constexpr std::string_view kWordLatin1 = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
inline constexpr std::string_view kSpaceSet = R"(\t-\r\x{85}\p{Z})";

/// An escape for one character or a set, whose `\` was consumed at `begin`.
Expected<ClassAtom> read_escape(PatternReader& in, std::size_t begin, bool ignore_case);

/// A class whose `[` was consumed, as an expression of PCRE2 that matches one character.
Expected<std::string> translate_class(PatternReader& in, bool ignore_case, int depth = 0);

}  // namespace dllm
