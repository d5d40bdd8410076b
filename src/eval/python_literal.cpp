#include "eval/python_literal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/parse_text.h"

namespace dllm {
namespace {

constexpr int kDepth = 64;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<std::string> whole() {
    auto value = read_value(0);
    skip();
    if (!value || at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool take_name(std::string_view word) {
    const std::size_t end = at_ + word.size();
    if (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_')) return false;
    return take(word);
  }

  std::optional<std::string> read_value(int depth) {
    if (depth > kDepth) return std::nullopt;
    skip();
    if (take_name("None")) return "None";
    if (take_name("True")) return "1";
    if (take_name("False")) return "0";
    if (take_name("set()")) return "set()";
    switch (peek()) {
      case '(':
        return parenthesised(depth);
      case '[': {
        ++at_;
        const auto items = sequence(']', depth);
        if (!items) return std::nullopt;
        return fmt::format("[{}]", fmt::join(items->first, ","));
      }
      case '{':
        return braces(depth);
      default:
        break;
    }
    if (peek() == '\'' || peek() == '"' || string_prefix()) return strings();
    return number();
  }

  bool string_prefix() const {
    const char c = peek();
    return (c == 'b' || c == 'r' || c == 'u') && at_ + 1 < text_.size() &&
           (text_[at_ + 1] == '\'' || text_[at_ + 1] == '"');
  }

  /// Values up to `close`, and whether a comma followed the last.
  std::optional<std::pair<std::vector<std::string>, bool>> sequence(char close, int depth) {
    std::vector<std::string> items;
    bool comma = false;
    for (;;) {
      skip();
      if (peek() == close && (items.empty() || comma)) break;
      if (!items.empty() && !comma) return std::nullopt;
      auto value = read_value(depth + 1);
      if (!value) return std::nullopt;
      items.push_back(std::move(*value));
      skip();
      comma = peek() == ',';
      if (comma) ++at_;
      if (!comma && peek() != close) return std::nullopt;
      if (!comma) break;
    }
    if (peek() != close) return std::nullopt;
    ++at_;
    return std::pair(std::move(items), comma);
  }

  std::optional<std::string> parenthesised(int depth) {
    ++at_;
    const auto items = sequence(')', depth);
    if (!items) return std::nullopt;
    if (items->first.size() == 1 && !items->second) return items->first.front();
    return fmt::format("({})", fmt::join(items->first, ","));
  }

  std::optional<std::string> braces(int depth) {
    ++at_;
    std::vector<std::string> items;
    std::unordered_map<std::string, std::size_t> places;  // of the keys
    bool dictionary = true, comma = true;
    for (;;) {
      skip();
      if (peek() == '}') break;
      if (!comma) return std::nullopt;
      auto key = read_value(depth + 1);
      if (!key) return std::nullopt;
      skip();
      const bool pair = take(":");
      if (items.empty()) dictionary = pair;
      if (pair != dictionary) return std::nullopt;
      std::string item = *key;
      if (pair) {
        const auto value = read_value(depth + 1);
        if (!value) return std::nullopt;
        item += ":" + *value;
      }
      // A repeated key keeps its first position and its last value; a repeated element counts once.
      if (const auto [known, added] = places.try_emplace(std::move(*key), items.size()); added)
        items.push_back(std::move(item));
      else
        items[known->second] = std::move(item);
      skip();
      comma = take(",");
    }
    ++at_;
    std::sort(items.begin(), items.end());
    return fmt::format("{}{{{}}}", dictionary ? "dict" : "set", fmt::join(items, ","));
  }

  std::optional<std::string> strings() {
    std::string value;
    char kind = 's';
    bool any = false;
    for (;; skip()) {
      if (peek() != '\'' && peek() != '"' && !string_prefix()) break;
      if (!one_string(value, kind)) return std::nullopt;
      any = true;
    }
    if (!any) return std::nullopt;
    std::string result(1, kind);
    result += '"';
    for (const char c : value) result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
    return result + '"';
  }

  bool one_string(std::string& value, char& kind) {
    bool raw = false;
    if (string_prefix()) {
      raw = peek() == 'r';
      kind = peek() == 'b' ? 'b' : 's';
      ++at_;
    }
    const char mark = peek();
    const bool triple = take(std::string(3, mark));
    if (!triple) ++at_;
    const std::string close(triple ? 3 : 1, mark);
    while (at_ < text_.size()) {
      if (take(close)) return true;
      if (!triple && peek() == '\n') return false;
      if (peek() == '\\' && !raw) {
        if (!escape(value)) return false;
      } else {
        value += text_[at_++];
      }
    }
    return false;
  }

  bool escape(std::string& value) {
    if (at_ + 1 >= text_.size()) return false;
    const char c = text_[at_ + 1];
    at_ += 2;
    static constexpr std::string_view from = "nrtabfv0\\'\"", to("\n\r\t\a\b\f\v\0\\'\"", 11);
    if (const auto i = from.find(c); i != std::string_view::npos) {
      value += to[i];
      return true;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      (value += '\\') += c;  // Python keeps an unknown escape unchanged
      return true;
    }
    std::uint32_t code = 0;
    const std::string_view hex = text_.substr(at_, digits);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (error != std::errc() || hex.size() != digits || end != hex.data() + digits || code > 0x10ffff) return false;
    at_ += digits;
    append_utf8(value, code);
    return true;
  }

  static void append_utf8(std::string& value, std::uint32_t code) {
    const auto byte = [&](std::uint32_t b) { value += static_cast<char>(b); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xc0 | code >> 6), byte(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 0x3f)), byte(0x80 | (code & 0x3f));
    } else {
      byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 0x3f)), byte(0x80 | (code >> 6 & 0x3f)),
          byte(0x80 | (code & 0x3f));
    }
  }

  std::optional<std::string> number() {
    std::string digits;
    std::size_t i = at_;
    while (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) {
      if (text_[i] == '-') digits = digits.empty() ? "-" : "";
      ++i;
    }
    const std::size_t begin = i;
    bool whole = true;
    for (; i < text_.size(); ++i) {
      const char c = text_[i];
      const bool exponent_sign = (c == '-' || c == '+') && i > begin && (text_[i - 1] == 'e' || text_[i - 1] == 'E');
      if (c == '.' || c == 'e' || c == 'E' || exponent_sign) whole = false;
      if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && c != 'e' && c != 'E' && c != '_' &&
          !exponent_sign)
        break;
      if (c != '_') digits += c;
    }
    if (i == begin) return std::nullopt;
    at_ = i;
    if (whole) {  // of any length; leading zeros and the sign of zero do not count
      const bool negative = digits.front() == '-';
      digits.erase(0, std::min(digits.find_first_not_of("-0"), digits.size()));
      return digits.empty() ? "0" : (negative ? "-" : "") + digits;
    }
    const auto value = parse_double(digits);
    if (!value) return std::nullopt;
    if (*value == std::floor(*value) && std::abs(*value) < 1e15)
      return fmt::format("{}", static_cast<std::int64_t>(*value));
    return fmt::format("{}", *value);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::string> canonical_python_literal(std::string_view text) { return Reader(text).whole(); }

}  // namespace dllm
