#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/char_set.h"

namespace dllm::constrain {

struct Pattern;
/// Patterns are immutable, and parts may be shared: compilation uses this to keep automata small.
using PatternPtr = std::shared_ptr<const Pattern>;

/// A regular expression over characters, as a tree.
struct Pattern {
  enum class Kind : std::uint8_t {
    kChars,     ///< one character of a set; the empty set matches nothing
    kText,      ///< the text: a part for each of its characters would cost a hundred times its bytes
    kSequence,  ///< all parts, one after another; no parts: the empty text
    kEither,    ///< one of the parts; no parts: nothing
    kRepeat,    ///< the part, `least` to `most` times
    kCounted,   ///< the part, at most `most` times, without a state for each time: see counted()
    kBoth,      ///< texts that both parts match
    kExcept,    ///< texts that the first part matches and the second does not
  };
  static constexpr std::int32_t kUnbounded = -1;  ///< of `most`

  Kind kind = Kind::kSequence;
  CharSet chars{};
  std::string text{};  ///< UTF-8
  std::vector<PatternPtr> parts{};
  std::int32_t least = 0, most = kUnbounded;
  /// Of the longest way down to a part without parts. What walks a pattern recurses, so that readers of untrusted texts
  /// limit it; parts that are shared make patterns deeper than any text is nested.
  std::int32_t depth = 0;
  std::string place{};  ///< of a schema: what it is called in errors about its size
};

/// The deepest pattern that is compiled: recursion then takes less than 2 MB of stack.
inline constexpr std::int32_t kDeepestPattern = 4000;

PatternPtr one_of(CharSet chars);
/// The text itself. Precondition: it is UTF-8.
PatternPtr literal(std::string_view text);
PatternPtr sequence(std::vector<PatternPtr> parts);
PatternPtr either(std::vector<PatternPtr> parts);
PatternPtr repeat(PatternPtr part, std::int32_t least, std::int32_t most);
/// The part, at most `most` times. Whoever follows the automaton counts how often it has begun, so `most` costs no
/// states. Where that is not possible, because something else may be there too, fewer times may be possible instead.
/// Precondition: what follows begins otherwise than the part, which is not empty and begins with no other part.
PatternPtr counted(PatternPtr part, std::int32_t most);
/// Texts that both patterns match, and those of the first that are none of the second. They are whole automata, in
/// which nothing is counted, and their product.
PatternPtr both(PatternPtr first, PatternPtr second);
PatternPtr except(PatternPtr first, PatternPtr second);
/// The pattern with a name for errors.
PatternPtr at_place(const PatternPtr& pattern, std::string place);
inline PatternPtr maybe(PatternPtr part) { return repeat(std::move(part), 0, 1); }

/// The pattern with every set of characters, and every character of a text, replaced by what `replace` makes of it.
/// Parts stay shared.
PatternPtr replace_chars(const PatternPtr& pattern, const std::function<PatternPtr(const CharSet&)>& replace);

/// A pattern that matches fewer texts, with a smaller automaton: within both() and except(), parts that may be repeated
/// a limited number of times are repeated at most `most` times, or as often as they must be. Parts stay shared.
PatternPtr with_shorter_products(const PatternPtr& pattern, std::int32_t most);

}  // namespace dllm::constrain
