#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/try.h"
#include "text/utf8.h"

namespace dllm::jinja {

namespace {

constexpr int kMaxParseDepth = 120;  // two per pair of brackets; each costs a dozen stack frames

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kData:
      return "text";
    case TokenType::kPrintBegin:
      return "'{{'";
    case TokenType::kPrintEnd:
      return "'}}'";
    case TokenType::kBlockBegin:
      return "'{%'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kString:
      return "a string";
    case TokenType::kInteger:
    case TokenType::kFloat:
      return "a number";
    case TokenType::kName:
    case TokenType::kOperator:
      break;
  }
  return fmt::format("'{}'", replace_invalid_utf8(token.text));
}

}  // namespace

// Counts the nesting of recursive parse functions, and refuses to go too deep.
class ParseDepthGuard {
 public:
  explicit ParseDepthGuard(ExpressionParser& parser) : parser_(parser) { ++parser_.depth_; }
  ~ParseDepthGuard() { --parser_.depth_; }
  ParseDepthGuard(const ParseDepthGuard&) = delete;
  ParseDepthGuard& operator=(const ParseDepthGuard&) = delete;
  bool too_deep() const { return parser_.depth_ > kMaxParseDepth; }

 private:
  ExpressionParser& parser_;
};

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!is_operator(op)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

Error ExpressionParser::error_here(std::string what) const {
  return at_place({ErrorCode::kInvalidFile, std::move(what), "", ""}, token().place);
}

Error ExpressionParser::unexpected(std::string_view wanted) const {
  return error_here(fmt::format("expected {}, found {}", wanted, describe(token())));
}

Expected<void> ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) return unexpected(fmt::format("'{}'", op));
  return {};
}

Expected<std::string> ExpressionParser::expect_name() {
  if (token().type != TokenType::kName) return unexpected("a name");
  return take().text;
}

ExprPtr ExpressionParser::node(ExprKind kind, Place place, std::string text) const {
  auto made = std::make_unique<Expr>();
  made->kind = kind;
  made->place = place;
  made->text = std::move(text);
  return made;
}

Expected<ExprPtr> ExpressionParser::finish(ExprPtr made) const {
  int height = 0;
  for (const ExprPtr& arg : made->args) height = std::max(height, arg ? arg->height : 0);
  for (const auto& [name, arg] : made->named) height = std::max(height, arg->height);
  for (const ExprPtr* arg : {&made->unpacked, &made->unpacked_named})
    height = std::max(height, *arg ? (*arg)->height : 0);
  made->height = height + 1;
  if (made->height > kMaxTreeHeight) {
    return at_place({ErrorCode::kInvalidFile, "the expression is nested too deeply", "", ""}, made->place);
  }
  return made;
}

Expected<ExprPtr> ExpressionParser::parse_expression(bool conditional) {
  return conditional ? parse_conditional() : parse_or();
}

Expected<ExprPtr> ExpressionParser::parse_conditional() {
  const ParseDepthGuard guard(*this);
  if (guard.too_deep()) return error_here("the expression is nested too deeply");
  DLLM_TRY(ExprPtr value, parse_or());
  while (is_name("if")) {
    ExprPtr made = node(ExprKind::kConditional, take().place);
    DLLM_TRY(ExprPtr condition, parse_or());
    made->args.push_back(std::move(value));
    made->args.push_back(std::move(condition));
    if (skip_name("else")) {
      DLLM_TRY(ExprPtr otherwise, parse_conditional());
      made->args.push_back(std::move(otherwise));
    }
    DLLM_TRY(value, finish(std::move(made)));
  }
  return value;
}

Expected<ExprPtr> ExpressionParser::parse_or() {
  DLLM_TRY(ExprPtr left, parse_and());
  while (is_name("or")) {
    ExprPtr made = node(ExprKind::kOr, take().place);
    DLLM_TRY(ExprPtr right, parse_and());
    made->args.push_back(std::move(left));
    made->args.push_back(std::move(right));
    DLLM_TRY(left, finish(std::move(made)));
  }
  return left;
}

Expected<ExprPtr> ExpressionParser::parse_and() {
  DLLM_TRY(ExprPtr left, parse_not());
  while (is_name("and")) {
    ExprPtr made = node(ExprKind::kAnd, take().place);
    DLLM_TRY(ExprPtr right, parse_not());
    made->args.push_back(std::move(left));
    made->args.push_back(std::move(right));
    DLLM_TRY(left, finish(std::move(made)));
  }
  return left;
}

Expected<ExprPtr> ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const ParseDepthGuard guard(*this);
  if (guard.too_deep()) return error_here("the expression is nested too deeply");
  ExprPtr made = node(ExprKind::kNot, take().place);
  DLLM_TRY(ExprPtr operand, parse_not());
  made->args.push_back(std::move(operand));
  return finish(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_compare() {
  constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  const Place place = token().place;
  DLLM_TRY(ExprPtr first, parse_sum());
  ExprPtr made;
  while (true) {
    std::string op;
    if (token().type == TokenType::kOperator && std::ranges::find(kOperators, token().text) != kOperators.end()) {
      op = take().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (is_name("not") && peek().type == TokenType::kName && peek().text == "in") {
      take();
      take();
      op = "not in";
    } else {
      break;
    }
    if (!made) {
      made = node(ExprKind::kCompare, place);
      made->args.push_back(std::move(first));
    }
    DLLM_TRY(ExprPtr operand, parse_sum());
    made->args.push_back(std::move(operand));
    made->names.push_back(std::move(op));
  }
  if (!made) return first;
  return finish(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_binary(Rule operand, std::initializer_list<std::string_view> operators) {
  DLLM_TRY(ExprPtr left, (this->*operand)());
  while (token().type == TokenType::kOperator && std::ranges::find(operators, token().text) != operators.end()) {
    const Token op = take();
    ExprPtr made = node(ExprKind::kBinary, op.place, op.text);
    DLLM_TRY(ExprPtr right, (this->*operand)());
    made->args.push_back(std::move(left));
    made->args.push_back(std::move(right));
    DLLM_TRY(left, finish(std::move(made)));
  }
  return left;
}

// Jinja binds ~ tighter than + and looser than *.
Expected<ExprPtr> ExpressionParser::parse_sum() { return parse_binary(&ExpressionParser::parse_concat, {"+", "-"}); }

Expected<ExprPtr> ExpressionParser::parse_concat() {
  DLLM_TRY(ExprPtr first, parse_product());
  if (!is_operator("~")) return first;
  ExprPtr made = node(ExprKind::kConcat, token().place);
  made->args.push_back(std::move(first));
  while (skip_operator("~")) {
    DLLM_TRY(ExprPtr next, parse_product());
    made->args.push_back(std::move(next));
  }
  return finish(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_product() {
  return parse_binary(&ExpressionParser::parse_power, {"*", "/", "//", "%"});
}

// Left-associative, and -2**2 is 4: Jinja's grammar, not Python's.
Expected<ExprPtr> ExpressionParser::parse_power() {
  return parse_binary(&ExpressionParser::parse_unary_filtered, {"**"});
}

Expected<ExprPtr> ExpressionParser::parse_unary(bool with_filter) {
  const ParseDepthGuard guard(*this);
  if (guard.too_deep()) return error_here("the expression is nested too deeply");
  ExprPtr made;
  if (is_operator("-") || is_operator("+")) {
    const Token sign = take();
    made = node(sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, sign.place);
    DLLM_TRY(ExprPtr operand, parse_unary(false));
    made->args.push_back(std::move(operand));
    DLLM_TRY(made, finish(std::move(made)));
  } else {
    DLLM_TRY(made, parse_primary());
  }
  DLLM_TRY(made, parse_postfix(std::move(made)));
  if (!with_filter) return made;
  return parse_filters(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_filters(ExprPtr input) {
  while (true) {
    if (skip_operator("|")) {
      DLLM_TRY(input, parse_filter(std::move(input)));
    } else if (is_name("is")) {
      DLLM_TRY(input, parse_test(std::move(input)));
    } else if (is_operator("(")) {
      ExprPtr call = node(ExprKind::kCall, token().place);
      call->args.push_back(std::move(input));
      DLLM_CHECK_OK(parse_arguments(*call));
      DLLM_TRY(input, finish(std::move(call)));
    } else {
      return input;
    }
  }
}

Expected<ExprPtr> ExpressionParser::parse_filter(ExprPtr input) {
  ExprPtr made = node(ExprKind::kFilter, token().place);
  DLLM_TRY(made->text, expect_name());
  made->args.push_back(std::move(input));
  if (is_operator("(")) DLLM_CHECK_OK(parse_arguments(*made));
  return finish(std::move(made));
}

// `is name`, `is not name`, `is name(args)`, `is name arg`.
Expected<ExprPtr> ExpressionParser::parse_test(ExprPtr input) {
  const Place place = take().place;
  const bool negated = skip_name("not");
  ExprPtr made = node(ExprKind::kTest, place);
  DLLM_TRY(made->text, expect_name());
  made->args.push_back(std::move(input));
  const TokenType type = token().type;
  const bool value = type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat;
  const bool name = type == TokenType::kName && !is_name("else") && !is_name("or") && !is_name("and");
  if (is_operator("(")) {
    DLLM_CHECK_OK(parse_arguments(*made));
  } else if (value || name || is_operator("[") || is_operator("{")) {
    if (is_name("is")) return error_here("tests cannot be chained with 'is'");
    DLLM_TRY(ExprPtr argument, parse_primary());
    DLLM_TRY(argument, parse_postfix(std::move(argument)));
    made->args.push_back(std::move(argument));
  }
  DLLM_TRY(made, finish(std::move(made)));
  if (!negated) return made;
  ExprPtr inverse = node(ExprKind::kNot, place);
  inverse->args.push_back(std::move(made));
  return finish(std::move(inverse));
}

}  // namespace dllm::jinja
