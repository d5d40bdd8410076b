#include "npu_core/assembler/expression.h"

#include <fmt/format.h>

#include <cctype>
#include <limits>

namespace dllm::npu {
namespace {

constexpr int kMaxNesting = 64;

bool identifier_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool identifier_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

/// Precedence climbing. Every function leaves at_ after what it has read; after an error they return at once.
class Parser {
 public:
  Parser(std::string_view text, const Constants& constants) : text_(text), constants_(constants) {}

  ExpressionResult run() {
    ExpressionResult result;
    result.value = binary(0, 0);
    skip();
    if (error_.what.empty() && at_ != text_.size()) fail("unexpected text");
    result.error = error_;
    return result;
  }

 private:
  struct Operator {
    std::string_view symbol;
    int precedence;
  };
  static constexpr Operator kOperators[] = {{"|", 1}, {"^", 2}, {"&", 3}, {"<<", 4}, {">>", 4},
                                            {"+", 5}, {"-", 5}, {"*", 6}, {"/", 6},  {"%", 6}};

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  std::int64_t fail(std::string what) {
    if (error_.what.empty()) error_ = {std::move(what), at_};
    return 0;
  }

  std::int64_t binary(int minimum, int depth) {
    if (depth > kMaxNesting) return fail("the expression nests too deeply");
    std::int64_t left = unary(depth);
    while (error_.what.empty()) {
      skip();
      const Operator* found = nullptr;
      for (const Operator& candidate : kOperators)
        if (text_.substr(at_).starts_with(candidate.symbol) && candidate.precedence > minimum) found = &candidate;
      if (found == nullptr) return left;
      at_ += found->symbol.size();
      const std::int64_t right = binary(found->precedence, depth + 1);
      if (error_.what.empty()) left = apply(found->symbol, left, right);
    }
    return 0;
  }

  std::int64_t apply(std::string_view symbol, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    switch (symbol[0]) {
      case '|':
        return a | b;
      case '^':
        return a ^ b;
      case '&':
        return a & b;
      case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
      case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
      case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
      case '<':
      case '>':
        if (b < 0 || b > 62) return fail("the shift is not in 0..62");
        if (symbol[0] == '>') return a >> b;
        overflow = __builtin_mul_overflow(a, std::int64_t{1} << b, &result);
        break;
      default:
        if (b == 0) return fail("division by zero");
        if (b == -1) {  // the one quotient that overflows is -2^63 / -1
          overflow = symbol[0] == '/' && __builtin_sub_overflow(std::int64_t{0}, a, &result);
          break;
        }
        result = symbol[0] == '/' ? a / b : a % b;
    }
    return overflow ? fail("the result does not fit into 64 bits") : result;
  }

  std::int64_t unary(int depth) {
    if (depth > kMaxNesting) return fail("the expression nests too deeply");
    skip();
    if (at_ == text_.size()) return fail("expected a number, a constant or '('");
    const char c = text_[at_];
    if (c == '-' || c == '~' || c == '+') {
      ++at_;
      const std::int64_t value = unary(depth + 1);
      if (!error_.what.empty()) return 0;
      return c == '~' ? ~value : c == '+' ? value : apply("-", 0, value);
    }
    if (c == '(') {
      ++at_;
      const std::int64_t value = binary(0, depth + 1);
      skip();
      if (!error_.what.empty()) return 0;
      if (at_ == text_.size() || text_[at_] != ')') return fail("expected ')'");
      ++at_;
      return value;
    }
    if (identifier_start(c)) return name();
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    return fail("expected a number, a constant or '('");
  }

  std::int64_t name() {
    std::size_t end = at_;
    while (end < text_.size() && identifier_part(text_[end])) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    const auto found = constants_.find(word);
    if (found == constants_.end()) return fail(fmt::format("'{}' is not a constant", word));
    at_ = end;
    return found->second;
  }

  std::int64_t number() {
    int base = 10;
    if (text_.substr(at_).starts_with("0x") || text_.substr(at_).starts_with("0X")) base = 16;
    if (text_.substr(at_).starts_with("0b") || text_.substr(at_).starts_with("0B")) base = 2;
    std::size_t i = base == 10 ? at_ : at_ + 2;
    std::int64_t value = 0;
    std::size_t digits = 0;
    for (; i < text_.size() && std::isalnum(static_cast<unsigned char>(text_[i])) != 0; ++i, ++digits) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[i])));
      const int digit = c >= 'a' ? c - 'a' + 10 : c - '0';
      if (digit >= base) return fail(fmt::format("'{}' is not a digit of base {}", text_[i], base));
      if (__builtin_mul_overflow(value, static_cast<std::int64_t>(base), &value) ||
          __builtin_add_overflow(value, static_cast<std::int64_t>(digit), &value))
        return fail("the number does not fit into 64 bits");
    }
    if (digits == 0) return fail("expected digits");
    at_ = i;
    return value;
  }

  std::string_view text_;
  const Constants& constants_;
  std::size_t at_ = 0;
  ExpressionError error_;
};

}  // namespace

ExpressionResult evaluate(std::string_view text, const Constants& constants) { return Parser(text, constants).run(); }

bool is_identifier(std::string_view text) {
  if (text.empty() || !identifier_start(text[0])) return false;
  for (const char c : text)
    if (!identifier_part(c)) return false;
  return true;
}

}  // namespace dllm::npu
