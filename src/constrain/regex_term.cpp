#include "constrain/regex_term.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "constrain/char_set.h"

namespace dllm::constrain {
namespace {

using Kind = RegexTerm::Kind;

bool all_plain(const std::vector<RegexTerm>& parts) {
  return std::ranges::all_of(parts, [](const RegexTerm& part) { return part.kind == Kind::kPlain; });
}

std::vector<PatternPtr> patterns_of(const std::vector<RegexTerm>& parts) {
  std::vector<PatternPtr> patterns;
  for (const RegexTerm& part : parts) patterns.push_back(part.plain);
  return patterns;
}

bool has(const RegexTerm& term, Kind kind) {
  return term.kind == kind ||
         std::ranges::any_of(term.parts, [kind](const RegexTerm& part) { return has(part, kind); });
}

/// Whether a term can only match at the start of the text.
bool begins_with_start(const RegexTerm& term) {
  if (term.kind == Kind::kStart) return true;
  if (term.parts.empty()) return false;
  if (term.kind == Kind::kEither) return std::ranges::all_of(term.parts, begins_with_start);
  return term.kind == Kind::kSequence && begins_with_start(term.parts.front());
}

Error unsupported(std::string what, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), "", std::move(hint)};
}

/// Whether the text before a term is empty.
enum class Start : std::uint8_t { kYes, kNo, kUnknown };

/// What an expression matches is found from its end: each term is given the pattern of what follows up to the end of
/// the text, so that what it says of the text ahead is a set of texts, too.
class Continuations {
 public:
  Expected<PatternPtr> match(const RegexTerm& term, const PatternPtr& rest, Start start) {
    // What walks the pattern, and what destroys it, recurses.
    if (++steps_ > kMostSteps || rest->depth >= kDeepestPattern)
      return unsupported("there is too much around look-aheads");
    switch (term.kind) {
      case Kind::kPlain:
        return rest->kind == Pattern::Kind::kSequence && rest->parts.empty() ? term.plain
                                                                             : sequence({term.plain, rest});
      case Kind::kSequence:
        return sequence_of(term, rest, start);
      case Kind::kEither: {
        std::vector<PatternPtr> ways;
        for (const RegexTerm& part : term.parts) {
          DLLM_TRY(ways.emplace_back(), match(part, rest, start));
        }
        return either(std::move(ways));
      }
      case Kind::kRepeat:
        return repeats(term, rest, start);
      case Kind::kAhead:
      case Kind::kNotAhead: {
        if (++looks_ > kMostLooks) return unsupported("there are too many look-aheads");
        DLLM_TRY(PatternPtr ahead, match(term.parts.front(), anything_, start));
        return term.kind == Kind::kAhead ? both(rest, std::move(ahead)) : except(rest, std::move(ahead));
      }
      case Kind::kStart:
        if (start == Start::kUnknown) return unsupported("'^' is supported at the beginning only", "write \\^");
        return start == Start::kYes ? rest : either({});
      case Kind::kEnd:
        return can_be_empty(rest) ? sequence({}) : either({});
    }
    return rest;
  }

  const PatternPtr& anything() const { return anything_; }

 private:
  static constexpr int kMostSteps = 20'000, kMostLooks = 32;

  Expected<PatternPtr> sequence_of(const RegexTerm& term, PatternPtr rest, Start start) {
    steps_ += static_cast<int>(term.parts.size());
    if (start != Start::kNo && !term.parts.empty() && may_precede_start(term)) return split_start(term, rest, start);
    std::vector<Start> starts;
    for (const RegexTerm& part : term.parts) {
      starts.push_back(start);
      if (part.kind == Kind::kAhead || part.kind == Kind::kNotAhead || part.kind == Kind::kStart) continue;
      const bool never_empty = part.kind == Kind::kPlain && !can_be_empty(part.plain);
      start = never_empty || start == Start::kNo ? Start::kNo : Start::kUnknown;
    }
    for (std::size_t i = term.parts.size(); i-- > 0;) {
      std::vector<PatternPtr> together;
      for (; term.parts[i].kind == Kind::kPlain; --i) {
        together.push_back(term.parts[i].plain);
        if (i == 0) break;
      }
      if (!together.empty()) {
        std::ranges::reverse(together);
        together.push_back(std::move(rest));
        rest = sequence(std::move(together));
        if (i == 0 && term.parts[0].kind == Kind::kPlain) break;
      }
      DLLM_TRY(rest, match(term.parts[i], rest, starts[i]));
    }
    return rest;
  }

  /// Whether a '^' follows something that may be empty, and need not.
  bool may_precede_start(const RegexTerm& term) {
    const RegexTerm& first = term.parts.front();
    if (first.kind != Kind::kPlain || !can_be_empty(first.plain)) return false;
    return std::any_of(term.parts.begin() + 1, term.parts.end(),
                       [](const RegexTerm& part) { return has(part, Kind::kStart); });
  }

  Expected<PatternPtr> split_start(const RegexTerm& term, const PatternPtr& rest, Start start) {
    const RegexTerm others = sequence_term({term.parts.begin() + 1, term.parts.end()});
    DLLM_TRY(PatternPtr without, match(others, rest, start));
    DLLM_TRY(PatternPtr after, match(others, rest, Start::kNo));
    PatternPtr some = both(term.parts.front().plain, sequence({one_of(CharSet::all()), anything_}));
    return either({std::move(without), sequence({std::move(some), std::move(after)})});
  }

  Expected<PatternPtr> repeats(const RegexTerm& term, const PatternPtr& rest, Start start) {
    constexpr std::int32_t kMostTimes = 8;
    if (term.most == Pattern::kUnbounded || term.most > kMostTimes)
      return unsupported("a look-ahead in a part that is repeated is not supported", "put it before the repeated part");
    PatternPtr result = rest;
    for (std::int32_t i = term.most; i > 0; --i) {
      const Start before = i == 1 ? start : start == Start::kNo ? Start::kNo : Start::kUnknown;
      DLLM_TRY(PatternPtr once, match(term.parts.front(), result, before));
      result = i > term.least ? either({std::move(once), rest}) : std::move(once);
    }
    return result;
  }

  bool can_be_empty(const PatternPtr& pattern) {
    const auto known = empty_.find(pattern);
    if (known != empty_.end()) return known->second;
    const auto part_can = [this](const PatternPtr& part) { return can_be_empty(part); };
    bool result = false;
    switch (pattern->kind) {
      case Pattern::Kind::kChars:
        break;
      case Pattern::Kind::kText:
        result = pattern->text.empty();
        break;
      case Pattern::Kind::kEither:
        result = std::ranges::any_of(pattern->parts, part_can);
        break;
      case Pattern::Kind::kSequence:
      case Pattern::Kind::kBoth:
        result = std::ranges::all_of(pattern->parts, part_can);
        break;
      case Pattern::Kind::kRepeat:
      case Pattern::Kind::kCounted:
        result = pattern->least == 0 || can_be_empty(pattern->parts.front());
        break;
      case Pattern::Kind::kExcept:
        result = can_be_empty(pattern->parts[0]) && !can_be_empty(pattern->parts[1]);
        break;
    }
    empty_.emplace(pattern, result);
    return result;
  }

  const PatternPtr anything_ = repeat(one_of(CharSet::all()), 0, Pattern::kUnbounded);
  std::unordered_map<PatternPtr, bool> empty_;  ///< keeps the patterns, so that no other has their address
  int steps_ = 0, looks_ = 0;
};

}  // namespace

RegexTerm plain_term(PatternPtr pattern) { return {Kind::kPlain, std::move(pattern), {}, 0, 0}; }

RegexTerm sequence_term(std::vector<RegexTerm> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  if (all_plain(parts)) return plain_term(sequence(patterns_of(parts)));
  return {Kind::kSequence, {}, std::move(parts), 0, 0};
}

RegexTerm either_term(std::vector<RegexTerm> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  if (all_plain(parts)) return plain_term(either(patterns_of(parts)));
  return {Kind::kEither, {}, std::move(parts), 0, 0};
}

RegexTerm repeat_term(RegexTerm part, std::int32_t least, std::int32_t most) {
  if (part.kind == Kind::kPlain) return plain_term(repeat(std::move(part.plain), least, most));
  return {Kind::kRepeat, {}, {std::move(part)}, least, most};
}

Expected<PatternPtr> language_of(const RegexTerm& term, RegexScope scope) {
  Continuations continuations;
  if (scope == RegexScope::kWhole) return continuations.match(term, sequence({}), Start::kYes);
  const PatternPtr& anything = continuations.anything();
  const bool several = term.kind == Kind::kEither;
  std::vector<PatternPtr> ways;
  for (std::size_t i = 0; i < (several ? term.parts.size() : 1); ++i) {
    const RegexTerm& one = several ? term.parts[i] : term;
    const bool starts = has(one, Kind::kStart);
    if (starts) {
      DLLM_TRY(ways.emplace_back(), continuations.match(one, anything, Start::kYes));
      if (begins_with_start(one)) continue;
    }
    DLLM_TRY(PatternPtr later, continuations.match(one, anything, Start::kNo));
    const PatternPtr before = starts ? sequence({one_of(CharSet::all()), anything}) : anything;
    ways.push_back(sequence({before, std::move(later)}));
  }
  return either(std::move(ways));
}

}  // namespace dllm::constrain
