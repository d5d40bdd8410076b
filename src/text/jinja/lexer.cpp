#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/try.h"
#include "text/jinja/literals.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::size_t rstrip_size(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    const Utf8Char c = utf8_at(text, at);
    if (!c.valid || at + c.size != end || !is_unicode_space(c.code)) break;
    end = at;
  }
  return end;
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  Expected<std::vector<Token>> run() {
    while (at_ < text_.size()) {
      const std::size_t open = find_open(at_);
      if (open == std::string::npos) {
        emit_data(text_.substr(at_), at_);
        at_ = text_.size();
        break;
      }
      DLLM_CHECK_OK(construct(open));
    }
    emit(TokenType::kEnd, "", text_.size());
    return std::move(tokens_);
  }

 private:
  std::size_t find_open(std::size_t from) const {
    for (std::size_t i = text_.find('{', from); i != std::string::npos; i = text_.find('{', i + 1)) {
      if (i + 1 < text_.size() && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    }
    return std::string::npos;
  }

  // The text before a tag, shortened by `{%-`, or by lstrip_blocks if only blanks precede the tag on its line.
  std::string_view data_before(std::size_t open, char sign, bool strips_line) const {
    const std::string_view data = std::string_view(text_).substr(at_, open - at_);
    if (sign == '-') return data.substr(0, rstrip_size(data));
    if (sign == '+' || !strips_line) return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line = newline == data.npos ? 0 : newline + 1;
    const bool starts_line = line > 0 || at_ == 0 || text_[at_ - 1] == '\n';
    if (starts_line && data.find_first_not_of(" \t", line) == data.npos) return data.substr(0, line);
    return data;
  }

  Expected<void> construct(std::size_t open) {
    const char kind = text_[open + 1];
    std::size_t inside = open + 2;
    const char sign = inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+') ? text_[inside] : '\0';
    if (sign != '\0') ++inside;
    emit_data(data_before(open, sign, kind != '{'), at_);
    at_ = inside;
    if (kind == '#') return comment(open);
    if (kind == '%' && at_keyword("raw")) return raw(open);
    emit(kind == '{' ? TokenType::kPrintBegin : TokenType::kBlockBegin, "", open);
    return expression(open, kind == '{' ? '}' : '%');
  }

  // Consumes the end of a tag whose closing mark (`%}`, `#}`, `}}`) starts at at_, after its sign was consumed.
  void close_tag(char sign, bool trims_newline) {
    at_ += 2;
    if (sign == '-') {
      skip_space();
    } else if (trims_newline && sign != '+' && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
  }

  Expected<void> comment(std::size_t open) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) return fail("the comment is not closed", open);
    const char sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : '\0';
    at_ = end;
    close_tag(sign, true);
    return {};
  }

  // at_ is after `{%` and its sign: is this `raw` or `endraw` and the end of the tag?
  bool at_keyword(std::string_view word) const {
    std::size_t i = at_;
    while (i < text_.size() && is_space(text_[i])) ++i;
    if (std::string_view(text_).substr(i, word.size()) != word) return false;
    i += word.size();
    while (i < text_.size() && is_space(text_[i])) ++i;
    if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) ++i;
    return std::string_view(text_).substr(i, 2) == "%}";
  }

  // Moves past the `%}` of a tag that at_keyword() has recognised; returns its sign.
  char skip_keyword(bool trims_newline) {
    at_ = text_.find("%}", at_);
    const char sign = text_[at_ - 1] == '-' || text_[at_ - 1] == '+' ? text_[at_ - 1] : '\0';
    close_tag(sign, trims_newline);
    return sign;
  }

  Expected<void> raw(std::size_t open) {
    skip_keyword(false);  // Jinja keeps the newline after {% raw %}
    const std::size_t begin = at_;
    for (std::size_t i = text_.find("{%", begin); i != std::string::npos; i = text_.find("{%", i + 2)) {
      std::size_t inside = i + 2;
      const char sign = inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+') ? text_[inside] : '\0';
      if (sign != '\0') ++inside;
      at_ = inside;
      const bool ends = at_keyword("endraw");
      at_ = begin;
      if (!ends) continue;
      emit_data(data_before(i, sign, true), begin);
      at_ = inside;
      skip_keyword(true);
      return {};
    }
    return fail("the raw block is not closed", open);
  }

  Expected<void> expression(std::size_t open, char closer) {
    std::string brackets;  // open ones: inside them `}}` closes dicts, not the tag
    while (true) {
      skip_space();
      if (at_ >= text_.size()) return fail("the tag is not closed", open);
      if (brackets.empty() && try_close(closer)) return {};
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        DLLM_CHECK_OK(string());
      } else if (is_digit(c)) {
        DLLM_CHECK_OK(number());
      } else if (is_name_char(c)) {
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
        emit(TokenType::kName, text_.substr(begin, at_ - begin), begin);
      } else {
        DLLM_CHECK_OK(punctuation(brackets));
      }
    }
  }

  bool try_close(char closer) {
    const char sign = text_[at_] == '-' || (text_[at_] == '+' && closer == '%') ? text_[at_] : '\0';
    const std::size_t mark = at_ + (sign != '\0' ? 1 : 0);
    if (mark + 1 >= text_.size() || text_[mark] != closer || text_[mark + 1] != '}') return false;
    emit(closer == '%' ? TokenType::kBlockEnd : TokenType::kPrintEnd, "", at_);
    at_ = mark;
    close_tag(sign, closer == '%');
    return true;
  }

  Expected<void> string() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return fail("the string is not closed", begin);
    auto value = unescape(std::string_view(text_).substr(begin + 1, at_ - begin - 1));
    if (!value) return at_place(std::move(value).error(), place_of(begin));
    ++at_;
    emit(TokenType::kString, *std::move(value), begin);
    return {};
  }

  Expected<void> number() {
    auto parsed = parse_number(std::string_view(text_).substr(at_), at_ > 0 && text_[at_ - 1] == '.');
    if (!parsed) return at_place(std::move(parsed).error(), place_of(at_));
    Token& token = emit(parsed->is_float ? TokenType::kFloat : TokenType::kInteger, "", at_);
    token.integer = parsed->integer;
    token.real = parsed->real;
    at_ += parsed->size;
    return {};
  }

  Expected<void> punctuation(std::string& brackets) {
    constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const std::string_view rest = std::string_view(text_).substr(at_);
    for (const std::string_view op : kOperators) {
      if (!rest.starts_with(op)) continue;
      if (op == "(" || op == "[" || op == "{") brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty() || brackets.back() != op[0]) return fail(fmt::format("unexpected '{}'", op), at_);
        brackets.pop_back();
      }
      emit(TokenType::kOperator, std::string(op), at_);
      at_ += op.size();
      return {};
    }
    const Utf8Char c = utf8_at(text_, at_);
    return fail(fmt::format("unexpected character '{}'", replace_invalid_utf8(rest.substr(0, c.size))), at_);
  }

  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           static_cast<unsigned char>(c) >= 0x80;
  }

  void skip_space() {
    while (at_ < text_.size()) {
      const Utf8Char c = utf8_at(text_, at_);
      if (!c.valid || !is_unicode_space(c.code)) break;
      at_ += c.size;
    }
  }

  // Places are almost always requested in ascending order, so counting continues from the last one.
  Place place_of(std::size_t offset) {
    if (offset < counted_) {
      counted_ = 0;
      counted_place_ = {};
    }
    for (; counted_ < offset; ++counted_) {
      if (text_[counted_] == '\n') {
        ++counted_place_.line;
        counted_place_.column = 1;
      } else if ((static_cast<unsigned char>(text_[counted_]) & 0xC0) != 0x80) {
        ++counted_place_.column;
      }
    }
    return counted_place_;
  }

  void emit_data(std::string_view data, std::size_t offset) {
    if (!data.empty()) emit(TokenType::kData, std::string(data), offset);
  }

  Token& emit(TokenType type, std::string text, std::size_t offset) {
    tokens_.push_back({type, place_of(offset), std::move(text), 0, 0});
    return tokens_.back();
  }

  Error fail(std::string what, std::size_t offset) {
    return at_place({ErrorCode::kInvalidFile, std::move(what), "", ""}, place_of(offset));
  }

  std::string text_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;
  Place counted_place_;
  std::vector<Token> tokens_;
};

}  // namespace

Error at_place(Error error, Place place) {
  if (error.where.empty()) error.where = fmt::format("chat template, line {}, column {}", place.line, place.column);
  return error;
}

Expected<std::vector<Token>> tokenize(std::string_view source) { return Lexer(normalize_newlines(source)).run(); }

}  // namespace dllm::jinja
