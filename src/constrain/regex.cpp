#include "constrain/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/try.h"
#include "constrain/regex_term.h"
#include "text/utf8.h"

namespace dllm::constrain {
namespace {

constexpr int kMostGroups = 200;  ///< nested: parsing recurses
constexpr std::int32_t kMostRepeats = 10000;
/// Each takes some 100 bytes as a pattern. Parsing must stay short, as others wait for it.
constexpr std::size_t kMostRegexBytes = std::size_t{32} << 10U;

CharSet digit_chars() { return {'0', '9'}; }
CharSet word_chars() {
  CharSet set('a', 'z');
  set.add('A', 'Z');
  set.add('0', '9');
  set.add('_', '_');
  return set;
}
/// ECMA-262's LineTerminator: what `.` does not match.
CharSet line_ends() {
  CharSet set('\n', '\n');
  set.add('\r', '\r');
  set.add(0x2028, 0x2029);
  return set;
}
/// ECMA-262's WhiteSpace (with the characters of category Zs) and LineTerminator: \s.
CharSet spaces() {
  CharSet set('\t', '\r');
  for (const char32_t c : {0x20U, 0xA0U, 0x1680U, 0x202FU, 0x205FU, 0x3000U, 0xFEFFU}) set.add(c, c);
  set.add(0x2000, 0x200A);
  set.add(0x2028, 0x2029);
  return set;
}

class RegexParser {
 public:
  RegexParser(std::string_view text, RegexScope scope) : text_(text), scope_(scope) {}

  Expected<PatternPtr> run() {
    if (text_.size() > kMostRegexBytes)
      return Error{ErrorCode::kUsage, fmt::format("the expression has more than {} bytes", kMostRegexBytes),
                   fmt::format("byte {}", kMostRegexBytes), ""};
    for (std::size_t i = 0; i < text_.size();) {
      const Utf8Char c = utf8_at(text_, i);
      if (!c.valid) return Error{ErrorCode::kUsage, "the expression is not UTF-8", fmt::format("byte {}", i), ""};
      i += c.size;
    }
    DLLM_TRY(const RegexTerm all, alternatives(0));
    if (!done()) return bad("a ')' without '('", "write \\)");
    auto result = language_of(all, scope_);
    if (!result && result.error().code == ErrorCode::kUsage)
      return Error{ErrorCode::kUsage, result.error().what, fmt::format("'{}'", text_), result.error().hint};
    return result;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  bool see(char c) const { return !done() && text_[at_] == c; }
  bool take(char c) {
    if (!see(c)) return false;
    ++at_;
    return true;
  }
  Error bad(std::string what, std::string hint = "") const {
    return {ErrorCode::kUsage, std::move(what), fmt::format("byte {} of '{}'", at_, text_), std::move(hint)};
  }
  char32_t next_char() {
    const Utf8Char c = utf8_at(text_, at_);
    at_ += c.size;
    return c.code;
  }

  Expected<RegexTerm> alternatives(int depth) {
    std::vector<RegexTerm> parts;
    do {
      DLLM_TRY(parts.emplace_back(), terms(depth));
    } while (take('|'));
    return either_term(std::move(parts));
  }

  Expected<RegexTerm> terms(int depth) {
    std::vector<RegexTerm> parts;
    bool began = false;  // after something that takes characters
    bool ended = false;  // after a '$'
    while (!done() && !see('|') && !see(')')) {
      if (see('^') && began) return bad("'^' is supported at the beginning only", "write \\^");
      const std::size_t begin = at_;
      DLLM_TRY(parts.emplace_back(), term(depth));
      if (ended && !asserts(parts.back())) {
        at_ = begin;
        return bad("'$' is supported at the end only", "write \\$");
      }
      began = began || !asserts(parts.back());
      ended = ended || parts.back().kind == RegexTerm::Kind::kEnd;
    }
    return sequence_term(std::move(parts));
  }

  /// Whether a term takes no characters.
  static bool asserts(const RegexTerm& term) {
    using Kind = RegexTerm::Kind;
    return term.kind == Kind::kAhead || term.kind == Kind::kNotAhead || term.kind == Kind::kStart ||
           term.kind == Kind::kEnd;
  }

  Expected<RegexTerm> term(int depth) {
    DLLM_TRY(RegexTerm part, atom(depth));
    if (done()) return part;
    DLLM_TRY(const auto times, repeats());
    if (!times) return part;
    take('?');
    if (!done() && (see('*') || see('+') || see('?'))) return bad("nothing to repeat", "");
    return repeat_term(std::move(part), times->first, times->second);
  }

  using Times = std::pair<std::int32_t, std::int32_t>;

  Expected<std::optional<Times>> repeats() {
    if (take('*')) return std::optional(Times(0, Pattern::kUnbounded));
    if (take('+')) return std::optional(Times(1, Pattern::kUnbounded));
    if (take('?')) return std::optional(Times(0, 1));
    if (!take('{')) return std::optional<Times>();
    const auto least = number();
    if (!least) return bad("'{' begins a number of repeats: {2}, {2,} or {2,5}", "write \\{");
    std::int32_t most = *least;
    if (take(',')) most = see('}') ? Pattern::kUnbounded : number().value_or(-2);
    if (most == -2 || !take('}')) return bad("'{' begins a number of repeats: {2}, {2,} or {2,5}", "write \\{");
    if (*least > kMostRepeats || most > kMostRepeats)
      return bad(fmt::format("more than {} repeats", kMostRepeats), "use * or +");
    if (most != Pattern::kUnbounded && most < *least) return bad("the most repeats are fewer than the least");
    return std::optional(Times(*least, most));
  }

  std::optional<std::int32_t> number() {
    if (done() || text_[at_] < '0' || text_[at_] > '9') return std::nullopt;
    std::int32_t value = 0;
    for (; !done() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      value = std::min(kMostRepeats + 1, value * 10 + (text_[at_] - '0'));
    return value;
  }

  Expected<RegexTerm> atom(int depth) {
    switch (text_[at_]) {
      case '(':
        ++at_;
        return group(depth);
      case '[': {
        ++at_;
        DLLM_TRY(PatternPtr set, char_class());
        return plain_term(std::move(set));
      }
      case '.':
        ++at_;
        return plain_term(one_of(line_ends().complement()));
      case '\\': {
        ++at_;
        DLLM_TRY(CharSet set, escape(/*in_class=*/false));
        return plain_term(one_of(std::move(set)));
      }
      case '^':
      case '$':
        return RegexTerm{text_[at_++] == '^' ? RegexTerm::Kind::kStart : RegexTerm::Kind::kEnd, {}, {}, 0, 0};
      case '*':
      case '+':
      case '?':
      case '{':
        return bad("nothing to repeat", fmt::format("write \\{}", text_[at_]));
      default: {
        const char32_t c = next_char();
        return plain_term(one_of({c, c}));
      }
    }
  }

  Expected<RegexTerm> group(int depth) {
    if (depth >= kMostGroups) return bad(fmt::format("groups are nested more than {} deep", kMostGroups));
    std::optional<RegexTerm::Kind> look;
    if (take('?')) {
      if (take('='))
        look = RegexTerm::Kind::kAhead;
      else if (take('!'))
        look = RegexTerm::Kind::kNotAhead;
      else if (!take(':') && !take_name())
        return bad("looking behind and flags of groups are not supported", "write (...) or (?:...)");
    }
    DLLM_TRY(RegexTerm inner, alternatives(depth + 1));
    if (!take(')')) return bad("a '(' without ')'", "write \\(");
    if (look) return RegexTerm{*look, {}, {std::move(inner)}, 0, 0};
    return inner;
  }

  /// <NAME>, or P<NAME> as in Python, after the question mark: nothing refers to it.
  bool take_name() {
    std::string_view rest = text_.substr(at_);
    if (rest.starts_with('P')) rest.remove_prefix(1);
    const std::size_t end = rest.find('>');
    if (!rest.starts_with('<') || end == rest.npos || end < 2) return false;
    const auto in_name = [](char c) { return word_chars().contains(static_cast<unsigned char>(c)); };
    if (!std::ranges::all_of(rest.substr(1, end - 1), in_name)) return false;
    at_ = text_.size() - rest.size() + end + 1;
    return true;
  }

  std::optional<char32_t> hex(int size) {
    char32_t value = 0;
    for (int i = 0; i < size; ++i, ++at_) {
      if (done()) return std::nullopt;
      const char c = text_[at_];
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      else
        return std::nullopt;
    }
    return value;
  }

  /// After the backslash.
  Expected<CharSet> escape(bool in_class) {
    if (done()) return bad("a backslash at the end", "write \\\\");
    const char c = text_[at_++];
    const auto one = [](char32_t code) { return CharSet(code, code); };
    switch (c) {
      case 'd':
        return digit_chars();
      case 'D':
        return digit_chars().complement();
      case 'w':
        return word_chars();
      case 'W':
        return word_chars().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        break;
      case 'x':
      case 'u': {
        const auto code = hex(c == 'x' ? 2 : 4);
        if (!code || (*code >= 0xD800 && *code <= 0xDFFF)) return bad("\\xHH and \\uHHHH name one character");
        return one(*code);
      }
      default:
        break;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
        static_cast<unsigned char>(c) > 127)
      return bad(fmt::format("the escape \\{} is not supported", c),
                 "no back references, word boundaries and Unicode properties");
    return one(static_cast<unsigned char>(c));
  }

  /// After the bracket.
  Expected<PatternPtr> char_class() {
    const bool negated = take('^');
    CharSet set;
    for (bool first = true;; first = false) {
      if (done()) return bad("a '[' without ']'", "write \\[");
      // POSIX and Python take a bracket that comes first for a character, ECMAScript for the end.
      if (first && see(']')) return bad("an empty class", "write \\\\] for the bracket");
      if (take(']')) break;
      DLLM_TRY(const CharSet low, class_member());
      const bool range = see('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range) {
        set.add(low);
        continue;
      }
      ++at_;
      DLLM_TRY(const CharSet high, class_member());
      if (!is_one(low) || !is_one(high) || low.ranges()[0].first > high.ranges()[0].first)
        return bad("a range goes from one character to a later one", "write \\-");
      set.add(low.ranges()[0].first, high.ranges()[0].first);
    }
    return one_of(negated ? set.complement() : std::move(set));
  }

  static bool is_one(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  Expected<CharSet> class_member() {
    if (done()) return bad("a '[' without ']'", "write \\[");
    if (take('\\')) return escape(/*in_class=*/true);
    const char32_t c = next_char();
    return CharSet(c, c);
  }

  std::string_view text_;
  RegexScope scope_;
  std::size_t at_ = 0;
};

}  // namespace

Expected<PatternPtr> parse_regex(std::string_view text, RegexScope scope) { return RegexParser(text, scope).run(); }

}  // namespace dllm::constrain
