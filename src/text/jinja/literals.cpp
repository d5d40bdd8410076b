#include "text/jinja/literals.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "base/parse_text.h"
#include "base/try.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

Error bad_literal(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "", ""}; }

std::optional<std::uint32_t> digits(std::string_view text, int base) {
  std::uint32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view body) : body_(body) {}

  Expected<std::string> run() {
    while (at_ < body_.size()) {
      if (body_[at_] != '\\' || at_ + 1 >= body_.size()) {
        out_ += body_[at_++];
        continue;
      }
      const char kind = body_[at_ + 1];
      at_ += 2;
      DLLM_CHECK_OK(escape(kind));
    }
    return std::move(out_);
  }

 private:
  Expected<void> escape(char kind) {
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (kind == '\n') return {};
    if (const std::size_t i = kFrom.find(kind); i != kFrom.npos) {
      out_ += kTo[i];
      return {};
    }
    if (kind == 'x') return code_point(2);
    if (kind == 'u') return code_point(4);
    if (kind == 'U') return code_point(8);
    if (kind == 'N') return Error{ErrorCode::kUnsupported, "the escape \\N{...}", "", ""};
    if (kind >= '0' && kind <= '7') {
      std::size_t end = at_;
      while (end < body_.size() && end < at_ + 2 && body_[end] >= '0' && body_[end] <= '7') ++end;
      append_utf8(out_, *digits(body_.substr(at_ - 1, end - at_ + 1), 8));
      at_ = end;
      return {};
    }
    out_ += '\\';  // Python keeps unknown escapes unchanged
    out_ += kind;
    return {};
  }

  Expected<void> code_point(std::size_t size) {
    auto code = at_ + size <= body_.size() ? digits(body_.substr(at_, size), 16) : std::nullopt;
    if (!code) return bad_literal("an escape has too few hexadecimal digits");
    at_ += size;
    // Two \u escapes may spell a surrogate pair.
    if (*code >= 0xD800 && *code < 0xDC00 && body_.substr(at_, 2) == "\\u" && at_ + 6 <= body_.size()) {
      const auto low = digits(body_.substr(at_ + 2, 4), 16);
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
        at_ += 6;
      }
    }
    if (*code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
      return bad_literal(fmt::format("U+{:04X} is not a valid character", *code));
    }
    append_utf8(out_, *code);
    return {};
  }

  std::string_view body_;
  std::size_t at_ = 0;
  std::string out_;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// End of a run of digits, which may be separated by single underscores.
std::size_t digit_run(std::string_view text, std::size_t at) {
  while (at < text.size() && (is_digit(text[at]) || (text[at] == '_' && at > 0 && is_digit(text[at - 1]) &&
                                                     at + 1 < text.size() && is_digit(text[at + 1])))) {
    ++at;
  }
  return at;
}

// End of the float at the start of `text`; 0 if there is only an integer.
std::size_t float_end(std::string_view text) {
  std::size_t at = digit_run(text, 0);
  bool is_float = false;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
    at = digit_run(text, at + 1);
    is_float = true;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_digit(text[exponent])) {
      at = digit_run(text, exponent);
      is_float = true;
    }
  }
  return is_float ? at : 0;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

}  // namespace

Expected<std::string> unescape(std::string_view body) { return Unescaper(body).run(); }

Expected<Number> parse_number(std::string_view text, bool after_dot) {
  Number number;
  if (const std::size_t end = after_dot ? 0 : float_end(text); end > 0) {
    const std::string plain = without_underscores(text.substr(0, end));
    number.is_float = true;
    number.size = end;
    const auto real = parse_double(plain);
    if (!real) return bad_literal(fmt::format("the number {} is out of range", plain));
    number.real = *real;
    return number;
  }
  int base = 10;
  std::size_t begin = 0, end = digit_run(text, 0);
  if (text.size() > 2 && text[0] == '0' && std::string_view("xXoObB").find(text[1]) != std::string_view::npos) {
    base = text[1] == 'x' || text[1] == 'X' ? 16 : text[1] == 'o' || text[1] == 'O' ? 8 : 2;
    begin = end = 2;
    const std::string_view allowed = std::string_view("0123456789abcdefABCDEF_");
    while (end < text.size() && allowed.find(text[end]) != allowed.npos) ++end;
  }
  const std::string plain = without_underscores(text.substr(begin, end - begin));
  const auto [stop, code] = std::from_chars(plain.data(), plain.data() + plain.size(), number.integer, base);
  if (code != std::errc() || stop != plain.data() + plain.size()) {
    return bad_literal(fmt::format("the number {} is malformed or above 2^63-1", text.substr(0, end)));
  }
  number.size = end;
  return number;
}

}  // namespace dllm::jinja
