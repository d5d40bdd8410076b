#include "text/tokenizer/oniguruma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/try.h"
#include "text/tokenizer/oniguruma_class.h"
#include "text/utf8.h"

namespace dllm {
namespace {

constexpr int kMostGroups = 100;

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Expected<std::string> run() {
    DLLM_TRY(std::string out, alternatives({}));
    if (!in_.done()) return in_.invalid("an unmatched ')'");
    return out;
  }

 private:
  /// Options that hold to the end of a group.
  struct Options {
    bool ignore_case = false, dot_all = false, extended = false;
  };

  // Branches up to the `)` of the group, which is not consumed, or the end.
  Expected<std::string> alternatives(Options options) {
    if (++depth_ > kMostGroups) return in_.unsupported("so many nested groups");
    std::string out;
    while (!in_.done() && in_.peek() != ')') {
      if (in_.skip('|')) {
        out += '|';
        continue;
      }
      if (options.extended && skip_layout()) continue;
      DLLM_TRY(std::string atom, piece(options));
      out += atom;
    }
    --depth_;
    return out;
  }

  // White space and comments of (?x).
  bool skip_layout() {
    if (std::isspace(static_cast<unsigned char>(in_.peek())) != 0) {
      in_.take();
      return true;
    }
    if (in_.peek() != '#') return false;
    while (!in_.done() && in_.peek() != '\n') in_.take();
    return true;
  }

  // An atom with its quantifiers.
  Expected<std::string> piece(Options options) {
    DLLM_TRY(std::string atom, single(options));
    if (atom.empty()) return atom;  // a comment
    bool quantified = false;
    while (true) {
      if (options.extended && !in_.done() && skip_layout()) continue;
      DLLM_TRY(const auto quantifier, read_quantifier());
      if (!quantifier) return atom;
      if (assertion_) return in_.unsupported("a repeated assertion");
      if (quantified) atom = "(?:" + atom + ")";
      atom += *quantifier;
      quantified = true;
      if (interval_question_) {  // a{2}? is an optional a{2} in Ruby
        atom = "(?:" + atom + ")?";
        interval_question_ = false;
      }
    }
  }

  // In Ruby's syntax + makes only ?, * and + possessive; after an interval it repeats it.
  Expected<std::optional<std::string>> read_quantifier() {
    if (in_.done()) return std::optional<std::string>();
    const char c = in_.peek();
    if (c == '?' || c == '*' || c == '+') {
      std::string text(1, in_.take());
      if (!in_.done() && (in_.peek() == '?' || in_.peek() == '+')) text += in_.take();
      return std::optional(std::move(text));
    }
    if (c != '{') return std::optional<std::string>();
    DLLM_TRY(const auto bounds, in_.interval());
    if (!bounds) return std::optional<std::string>();
    std::string text = bounds->second == bounds->first ? fmt::format("{{{}}}", bounds->first)
                       : bounds->second.empty()        ? fmt::format("{{{},}}", bounds->first)
                                                       : fmt::format("{{{},{}}}", bounds->first, bounds->second);
    if (in_.skip('?')) {
      if (bounds->second == bounds->first) {
        interval_question_ = true;
      } else {
        text += '?';
      }
    }
    return std::optional(std::move(text));
  }

  Expected<std::string> single(Options& options) {
    assertion_ = false;
    const std::size_t at = in_.at();
    const char c = in_.peek();
    if (c == '[') {
      in_.take();
      return translate_class(in_, options.ignore_case);
    }
    if (c == '(') return group(options);
    if (c == '\\') return escape(options);
    if (c == '*' || c == '+' || c == '?') return in_.invalid("nothing to repeat");
    if (c == '{') {
      DLLM_TRY(const auto bounds, in_.interval());
      if (bounds) return in_.invalid("nothing to repeat");
      in_.take();
      return std::string("\\{");
    }
    assertion_ = c == '^' || c == '$';
    in_.take_character();
    if (c == '.') return std::string(options.dot_all ? "(?s:.)" : ".");
    return std::string(in_.from(at));
  }

  Expected<std::string> group(Options& options) {
    in_.take();
    if (!in_.skip('?')) {
      if (!in_.done() && in_.peek() == '*') return in_.unsupported("(*");
      return closed("(", options);
    }
    if (in_.skip('#')) {
      while (!in_.done() && in_.peek() != ')') in_.take();
      if (!in_.skip(')')) return in_.invalid("a comment without end");
      return std::string();
    }
    for (const std::string_view kind : {"=", "!", "<=", "<!"}) {
      if (!in_.skip_text(kind)) continue;
      DLLM_TRY(std::string out, closed("(?" + std::string(kind), options));
      assertion_ = true;
      return out;
    }
    for (const std::string_view kind : {":", ">"})
      if (in_.skip_text(kind)) return closed("(?" + std::string(kind), options);
    if (!in_.done() && (in_.peek() == '<' || in_.peek() == '\'')) {
      const char end = in_.take() == '<' ? '>' : '\'';
      while (!in_.done() && in_.peek() != end) in_.take();
      if (!in_.skip(end)) return in_.invalid("a group name without end");
      return closed("(?:", options);  // the name is for references, which are refused
    }
    return option_group(options);
  }

  // (?im-x) to the end of the group, or (?im-x:...)
  Expected<std::string> option_group(Options& outer) {
    Options options = outer;
    bool on = true;
    while (!in_.done()) {
      const char c = in_.take();
      if (c == ')') {
        // Everything that follows in the group, with its branches, is under the options.
        DLLM_TRY(const std::string rest, alternatives(options));
        return opened(options, outer) + rest + ")";
      }
      if (c == ':') {
        DLLM_TRY(const std::string inside, alternatives(options));
        if (!in_.skip(')')) return in_.invalid("a group without end");
        return opened(options, outer) + inside + ")";
      }
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        options.ignore_case = on;
      } else if (c == 'm') {
        options.dot_all = on;
      } else if (c == 'x') {
        options.extended = on;
      } else {
        return in_.unsupported(fmt::format("(?{}", c));
      }
    }
    return in_.invalid("a group without end");
  }

  static std::string opened(const Options& options, const Options& outer) {
    if (options.ignore_case == outer.ignore_case) return "(?:";
    return options.ignore_case ? "(?i:" : "(?-i:";
  }

  Expected<std::string> closed(std::string open, const Options& options) {
    DLLM_TRY(const std::string inside, alternatives(options));
    if (!in_.skip(')')) return in_.invalid("a group without end");
    assertion_ = false;
    return open + inside + ")";
  }

  Expected<std::string> escape(const Options& options) {
    const std::size_t begin = in_.at();
    in_.take();
    if (in_.done()) return in_.invalid("an escape without character");
    const char c = in_.peek();
    if (std::string_view("AzZGK").find(c) != std::string_view::npos) {
      in_.take();
      assertion_ = true;
      return std::string(in_.from(begin));
    }
    if (c == 'b' || c == 'B') {
      in_.take();
      assertion_ = true;
      const std::string word = fmt::format("[{}{}]", kWordSet, kWordLatin1);
      return c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                      : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
    }
    if (c == 'R') return in_.take(), std::string("\\R");
    if (c == 'N') return in_.take(), std::string("[^\\n]");
    if (c == 'O') return in_.take(), std::string("(?s:.)");
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 && c != '0') {
      // \141 is an octal code, \1 a reference.
      const std::string_view digits = in_.rest().substr(0, 3);
      const bool octal = digits.size() == 3 && std::ranges::all_of(digits, [](char d) { return d >= '0' && d <= '7'; });
      if (!octal) return in_.unsupported(fmt::format("the reference \\{}", c));
    }
    if (std::string_view("XyYkg").find(c) != std::string_view::npos) return in_.unsupported(fmt::format("\\{}", c));
    DLLM_TRY(ClassAtom atom, read_escape(in_, begin, options.ignore_case));
    if (atom.text == kWordSet) atom.text += kWordLatin1;
    return atom.set ? (atom.negated ? "[^" : "[") + atom.text + "]" : atom.text;
  }

  PatternReader in_;
  int depth_ = 0;
  bool assertion_ = false;          ///< the last atom matches no character
  bool interval_question_ = false;  ///< read_quantifier() has read a{2}?
};

}  // namespace

Expected<std::string> from_oniguruma(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace dllm
