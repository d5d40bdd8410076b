#include "text/tokenizer/oniguruma_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/try.h"
#include "text/utf8.h"

namespace dllm {

void PatternReader::take_character() { at_ += utf8_at(pattern_, at_).size; }

bool PatternReader::skip(char c) {
  if (done() || peek() != c) return false;
  ++at_;
  return true;
}

bool PatternReader::skip_text(std::string_view text) {
  if (!rest().starts_with(text)) return false;
  at_ += text.size();
  return true;
}

Expected<std::optional<std::pair<std::string, std::string>>> PatternReader::interval() {
  constexpr std::size_t kDigits = 5;  // Oniguruma's limit is 100,000
  using Bounds = std::optional<std::pair<std::string, std::string>>;
  const std::string_view text = rest();
  std::size_t i = 1;
  std::string bounds[2];
  const auto number = [&](std::string& out) {
    while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0) out += text[i++];
  };
  number(bounds[0]);
  const bool comma = i < text.size() && text[i] == ',';
  if (comma) {
    ++i;
    number(bounds[1]);
  }
  if (i >= text.size() || text[i] != '}' || (bounds[0].empty() && bounds[1].empty())) return Bounds();
  if (bounds[0].size() > kDigits || bounds[1].size() > kDigits) return invalid("a repetition of more than 99999");
  at_ += i + 1;
  if (bounds[0].empty()) bounds[0] = "0";
  if (!comma) bounds[1] = bounds[0];
  return Bounds({std::move(bounds[0]), std::move(bounds[1])});
}

namespace {

std::string shown(std::string_view pattern) {
  constexpr std::size_t kMost = 200;
  return replace_invalid_utf8(pattern.substr(0, kMost)) + (pattern.size() > kMost ? "..." : "");
}

}  // namespace

Error PatternReader::invalid(std::string_view what) const {
  return {ErrorCode::kInvalidFile,
          fmt::format("pre-tokenizer pattern '{}' has {} at offset {}", shown(pattern_), what, at_), "", ""};
}

Error PatternReader::unsupported(std::string_view what) const {
  return {ErrorCode::kUnsupported,
          fmt::format("pre-tokenizer pattern '{}' uses {} at offset {}, which has no exact translation",
                      shown(pattern_), what, at_),
          "", ""};
}

namespace {

struct NamedSet {
  std::string_view name, set;
};

// Names of Oniguruma for sets that PCRE2 calls otherwise, or defines otherwise; in lower case, without spaces and _.
constexpr NamedSet kNamedSets[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"blank", R"(\t\p{Zs})"},
    {"cntrl", R"(\p{Cc})"},
    {"digit", R"(\p{Nd})"},
    {"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    {"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
    {"space", kSpaceSet},
    {"xdigit", "0-9A-Fa-f"},
    {"word", kWordSet},
    {"ascii", R"(\x{00}-\x{7F})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"any", R"(\x{00}-\x{10FFFF})"},
    {"letter", R"(\p{L})"},
    {"mark", R"(\p{M})"},
    {"number", R"(\p{N})"},
    {"punctuation", R"(\p{P})"},
    {"symbol", R"(\p{S})"},
    {"separator", R"(\p{Z})"},
    {"other", R"(\p{C})"},
    {"lowercaseletter", R"(\p{Ll})"},
    {"uppercaseletter", R"(\p{Lu})"},
    {"titlecaseletter", R"(\p{Lt})"},
    {"modifierletter", R"(\p{Lm})"},
    {"otherletter", R"(\p{Lo})"},
    {"decimalnumber", R"(\p{Nd})"},
    {"letternumber", R"(\p{Nl})"},
    {"othernumber", R"(\p{No})"},
    {"nonspacingmark", R"(\p{Mn})"},
    {"spacingmark", R"(\p{Mc})"},
    {"enclosingmark", R"(\p{Me})"},
    {"connectorpunctuation", R"(\p{Pc})"},
    {"dashpunctuation", R"(\p{Pd})"},
    {"control", R"(\p{Cc})"},
    {"format", R"(\p{Cf})"},
    {"unassigned", R"(\p{Cn})"},
    {"lc", R"(\p{Lu}\p{Ll}\p{Lt})"},
    {"casedletter", R"(\p{Lu}\p{Ll}\p{Lt})"},
};

std::string simple_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string property_set(const std::string& name) {
  const auto known = std::ranges::find(kNamedSets, name, &NamedSet::name);
  if (known != std::ranges::end(kNamedSets)) return std::string(known->set);
  if (name == "punct") return R"(\p{P})";
  constexpr std::string_view kFlags[] = {"alphabetic",
                                         "lowercase",
                                         "uppercase",
                                         "whitespace",
                                         "ideographic",
                                         "math",
                                         "emoji",
                                         "emojimodifier",
                                         "emojimodifierbase",
                                         "emojipresentation",
                                         "emojicomponent",
                                         "extendedpictographic",
                                         "unifiedideograph"};
  const bool flag = std::ranges::find(kFlags, name) != std::ranges::end(kFlags);
  std::string proper = name;
  proper[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  // The other long names are scripts. PCRE2's \\p{Han} has the characters that are used with it too.
  return (name.size() <= 2 || flag ? "\\p{" : "\\p{sc:") + proper + "}";
}

// Under (?i) Oniguruma closes a class under case, which PCRE2 does only for single characters and ranges.
Expected<ClassAtom> checked_case(const PatternReader& in, ClassAtom atom, bool ignore_case) {
  for (const char* cased : {"Lu}", "Ll}", "Lt}", "case}"})
    if (ignore_case && atom.text.find(cased) != std::string::npos)
      return in.unsupported("a property of case under (?i)");
  return atom;
}

Expected<ClassAtom> property(PatternReader& in, bool negated, bool ignore_case) {
  if (!in.skip('{')) return in.invalid("a property without {name}");
  if (in.skip('^')) negated = !negated;
  const std::size_t begin = in.at();
  while (!in.done() && in.peek() != '}') in.take();
  const std::string name = simple_name(in.from(begin));
  if (name.empty() || !in.skip('}')) return in.invalid("a property without {name}");
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) return in.invalid(fmt::format("the property '{}'", name));
  if (name.starts_with("in") && name.size() > 4) return in.unsupported(fmt::format("the block '{}'", name));
  return checked_case(in, {property_set(name), true, negated}, ignore_case);
}

std::string code_text(std::uint32_t code) { return fmt::format("\\x{{{:X}}}", code); }

// \xHH, \x{H...}, \uHHHH, \ooo
Expected<ClassAtom> code_escape(PatternReader& in, char kind) {
  std::string digits;
  const bool braces = kind == 'x' && in.skip('{');
  const std::size_t most = braces ? 8 : kind == 'x' ? 2 : kind == 'u' ? 4 : 3;
  const auto fits = [&](char c) {
    return kind == 'x' || kind == 'u' ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c >= '0' && c <= '7';
  };
  if (kind != 'x' && kind != 'u') digits = kind;
  while (!in.done() && digits.size() < most && fits(in.peek())) digits += in.take();
  if (braces && !in.skip('}')) return in.invalid("a code without end");
  if (digits.empty() || (kind == 'u' && digits.size() < most)) return in.invalid("a code without digits");
  const auto code = static_cast<std::uint32_t>(std::stoul(digits, nullptr, kind == 'x' || kind == 'u' ? 16 : 8));
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return in.invalid("a code that is no character");
  if (!braces && kind == 'x' && code > 0x7F) return in.unsupported("a byte of a character");
  return ClassAtom{code_text(code), false, false};
}

}  // namespace

Expected<ClassAtom> read_escape(PatternReader& in, std::size_t begin, bool ignore_case) {
  if (in.done()) return in.invalid("an escape without character");
  const char c = in.peek();
  if (static_cast<unsigned char>(c) >= 0x80) {
    in.take_character();
    return ClassAtom{std::string(in.from(begin + 1)), false, false};
  }
  in.take();
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool negated = c != lower;
  switch (lower) {
    case 's':
      return ClassAtom{std::string(kSpaceSet), true, negated};
    case 'w':
      return ClassAtom{std::string(kWordSet), true, negated};
    case 'd':
      return ClassAtom{R"(\p{Nd})", true, negated};
    case 'h':
      return ClassAtom{"0-9A-Fa-f", true, negated};
    case 'p':
      return property(in, negated, ignore_case);
    default:
      break;
  }
  constexpr std::string_view kControls = "tnrfvae", kCodes = "\t\n\r\f\v\a\x1B";
  if (const std::size_t i = kControls.find(c); i != kControls.npos)
    return ClassAtom{code_text(static_cast<unsigned char>(kCodes[i])), false, false};
  if (c == 'x' || c == 'u' || (c >= '0' && c <= '7')) return code_escape(in, c);
  if (std::isalnum(static_cast<unsigned char>(c)) == 0) return ClassAtom{fmt::format("\\{}", c), false, false};
  // Letters without a meaning stand for themselves; those with one that is not known here are refused.
  if (std::string_view("CMcMRXyYkgGAZzBKNO").find(c) != std::string_view::npos)
    return in.unsupported(fmt::format("\\{}", c));
  return ClassAtom{code_text(static_cast<unsigned char>(c)), false, false};
}

namespace {

/// A class: the union of its members, or of what intersections are of.
struct Union {
  std::string simple;                ///< characters, ranges and sets for one PCRE2 class
  std::vector<std::string> complex;  ///< expressions that match one character each

  std::string expression() const {
    if (complex.empty()) return simple.empty() ? "(?!)" : "[" + simple + "]";
    std::string out = "(?:";
    if (!simple.empty()) out += "[" + simple + "]|";
    for (std::size_t i = 0; i < complex.size(); ++i) out += (i > 0 ? "|" : "") + complex[i];
    return out + ")";
  }
};

class ClassParser {
 public:
  ClassParser(PatternReader& in, bool ignore_case, int depth) : in_(in), ignore_case_(ignore_case), depth_(depth) {}

  Expected<std::string> run() {
    if (depth_ > 20) return in_.unsupported("so many nested classes");
    const bool negated = in_.skip('^');
    if (in_.skip(']')) add_character("\\]");
    while (!in_.skip(']')) {
      if (in_.done()) return in_.invalid("a class without end");
      if (in_.skip_text("&&")) {
        intersected_.push_back(std::exchange(current_, Union()).expression());
        continue;
      }
      DLLM_CHECK_OK(member());
    }
    if (intersected_.empty()) {
      if (!current_.complex.empty() || !negated)
        return negated ? complement(current_.expression()) : current_.expression();
      return "[^" + current_.simple + "]";
    }
    std::string out = "(?:";
    for (const std::string& part : intersected_) out += "(?=" + part + ")";
    out += current_.expression() + ")";
    return negated ? complement(out) : out;
  }

 private:
  static std::string complement(const std::string& expression) { return "(?:(?!" + expression + ")(?s:.))"; }

  void add_character(std::string text) { current_.simple += text; }

  void add_set(const ClassAtom& atom) {
    if (!atom.negated) {
      current_.simple += atom.text;
    } else {
      current_.complex.push_back("[^" + atom.text + "]");
    }
  }

  Expected<void> member() {
    if (in_.skip_text("[:")) return bracket();
    if (in_.skip('[')) {
      DLLM_TRY(std::string inner, translate_class(in_, ignore_case_, depth_ + 1));
      current_.complex.push_back(std::move(inner));
      return {};
    }
    DLLM_TRY(const ClassAtom first, atom());
    const std::string_view rest = in_.rest();
    const bool ranges = rest.starts_with('-') && rest.size() > 1 && rest[1] != ']' && !rest.starts_with("-&&");
    if (first.set) {
      if (ranges) return in_.invalid("a range that begins with a set");
      add_set(first);
      return {};
    }
    if (!ranges || rest[1] == '[') {
      add_character(first.text);
      return {};
    }
    in_.take();
    DLLM_TRY(const ClassAtom last, atom());
    if (last.set) return in_.invalid("a range that ends with a set");
    add_character(first.text + "-" + last.text);
    return {};
  }

  Expected<ClassAtom> atom() {
    const std::size_t begin = in_.at();
    if (in_.skip('\\')) {
      if (in_.skip('b')) return ClassAtom{code_text(8), false, false};
      return read_escape(in_, begin, ignore_case_);
    }
    in_.take_character();
    const std::string_view text = in_.from(begin);
    if (text.size() == 1 && std::ispunct(static_cast<unsigned char>(text[0])) != 0)
      return ClassAtom{fmt::format("\\{}", text), false, false};
    return ClassAtom{std::string(text), false, false};
  }

  // [:name:], [:^name:]; anything else that begins like it is a nested class.
  Expected<void> bracket() {
    const bool negated = in_.skip('^');
    const std::size_t begin = in_.at();
    while (!in_.done() && std::isalpha(static_cast<unsigned char>(in_.peek())) != 0) in_.take();
    const std::string name(in_.from(begin));
    if (!in_.skip_text(":]")) return in_.unsupported("'[:'");
    const auto known = std::ranges::find(kNamedSets, name, &NamedSet::name);
    if (name != "punct" && known == std::ranges::end(kNamedSets))
      return in_.invalid(fmt::format("the bracket [:{}:]", name));
    // [:punct:] has the symbols too, unlike \p{Punct}.
    ClassAtom set{name == "punct" ? R"(\p{P}\p{S})" : std::string(known->set), true, negated};
    DLLM_TRY(set, checked_case(in_, std::move(set), ignore_case_));
    add_set(set);
    return {};
  }

  PatternReader& in_;
  bool ignore_case_;
  int depth_;
  Union current_;
  std::vector<std::string> intersected_;
};

}  // namespace

Expected<std::string> translate_class(PatternReader& in, bool ignore_case, int depth) {
  return ClassParser(in, ignore_case, depth).run();
}

}  // namespace dllm
