#include "base/try.h"
#include "text/jinja/expression_parser.h"

namespace dllm::jinja {

Expected<ExprPtr> ExpressionParser::parse_tuple(bool conditional, std::string_view stop) {
  const Place place = token().place;
  const auto ends = [&] {
    const TokenType type = token().type;
    return type == TokenType::kPrintEnd || type == TokenType::kBlockEnd || is_operator(")") ||
           (!stop.empty() && is_name(stop));
  };
  std::vector<ExprPtr> items;
  bool comma = false;
  while (!ends()) {
    DLLM_TRY(ExprPtr item, parse_expression(conditional));
    items.push_back(std::move(item));
    if (!skip_operator(",")) break;
    comma = true;
  }
  if (items.size() == 1 && !comma) return std::move(items[0]);
  if (items.empty()) return unexpected("an expression");
  ExprPtr made = node(ExprKind::kTuple, place);
  made->args = std::move(items);
  return finish(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_primary() {
  const Token first = token();
  switch (first.type) {
    case TokenType::kName: {
      take();
      ExprPtr made = node(ExprKind::kLiteral, first.place);
      if (first.text == "true" || first.text == "True") {
        made->literal = Value(true);
      } else if (first.text == "false" || first.text == "False") {
        made->literal = Value(false);
      } else if (first.text != "none" && first.text != "None") {
        made->kind = ExprKind::kName;
        made->text = first.text;
        uses_.varargs = uses_.varargs || first.text == "varargs";
        uses_.kwargs = uses_.kwargs || first.text == "kwargs";
        uses_.caller = uses_.caller || first.text == "caller";
      }
      return made;
    }
    case TokenType::kString:
      return parse_strings();
    case TokenType::kInteger:
    case TokenType::kFloat: {
      take();
      ExprPtr made = node(ExprKind::kLiteral, first.place);
      made->literal = first.type == TokenType::kFloat ? Value(first.real) : Value(first.integer);
      return made;
    }
    default:
      break;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  if (!skip_operator("(")) return unexpected("an expression");
  if (skip_operator(")")) return node(ExprKind::kTuple, first.place);
  DLLM_TRY(ExprPtr inner, parse_tuple());
  DLLM_CHECK_OK(expect_operator(")"));
  return inner;
}

// Adjacent string literals are joined, as in Python.
Expected<ExprPtr> ExpressionParser::parse_strings() {
  ExprPtr made = node(ExprKind::kLiteral, token().place);
  std::string text;
  while (token().type == TokenType::kString) text += take().text;
  made->literal = Value(std::move(text));
  return made;
}

Expected<ExprPtr> ExpressionParser::parse_list() {
  ExprPtr made = node(ExprKind::kList, take().place);
  while (!is_operator("]")) {
    DLLM_TRY(ExprPtr item, parse_expression());
    made->args.push_back(std::move(item));
    if (!skip_operator(",")) break;
  }
  DLLM_CHECK_OK(expect_operator("]"));
  return finish(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_dict() {
  ExprPtr made = node(ExprKind::kDict, take().place);
  while (!is_operator("}")) {
    DLLM_TRY(ExprPtr key, parse_expression());
    DLLM_CHECK_OK(expect_operator(":"));
    DLLM_TRY(ExprPtr value, parse_expression());
    made->args.push_back(std::move(key));
    made->args.push_back(std::move(value));
    if (!skip_operator(",")) break;
  }
  DLLM_CHECK_OK(expect_operator("}"));
  return finish(std::move(made));
}

Expected<ExprPtr> ExpressionParser::parse_postfix(ExprPtr object) {
  while (true) {
    if (is_operator(".")) {
      const Place place = take().place;
      ExprPtr made = node(ExprKind::kAttribute, place);
      made->args.push_back(std::move(object));
      if (token().type == TokenType::kInteger) {
        made->kind = ExprKind::kItem;
        ExprPtr index = node(ExprKind::kLiteral, place);
        index->literal = Value(take().integer);
        made->args.push_back(std::move(index));
      } else {
        DLLM_TRY(made->text, expect_name());
      }
      DLLM_TRY(object, finish(std::move(made)));
    } else if (is_operator("[")) {
      DLLM_TRY(object, parse_subscript(std::move(object)));
    } else if (is_operator("(")) {
      ExprPtr call = node(ExprKind::kCall, token().place);
      call->args.push_back(std::move(object));
      DLLM_CHECK_OK(parse_arguments(*call));
      DLLM_TRY(object, finish(std::move(call)));
    } else {
      return object;
    }
  }
}

// object[index], object[start:stop:step]
Expected<ExprPtr> ExpressionParser::parse_subscript(ExprPtr object) {
  ExprPtr made = node(ExprKind::kItem, take().place);
  made->args.push_back(std::move(object));
  std::size_t colons = 0;
  ExprPtr part;
  while (!is_operator("]")) {
    if (skip_operator(":")) {
      if (++colons > 2) return error_here("a slice has at most three parts");
      made->args.push_back(std::move(part));
      part = nullptr;
      continue;
    }
    if (part) return unexpected("']'");
    DLLM_TRY(part, parse_expression());
  }
  if (colons == 0 && !part) return unexpected("an index");
  made->args.push_back(std::move(part));
  if (colons > 0) {
    made->kind = ExprKind::kSlice;
    made->args.resize(4);
  }
  DLLM_CHECK_OK(expect_operator("]"));
  return finish(std::move(made));
}

Expected<void> ExpressionParser::parse_arguments(Expr& call) {
  DLLM_CHECK_OK(expect_operator("("));
  while (!is_operator(")")) {
    if (is_operator("*") || is_operator("**")) {
      ExprPtr& unpacked = take().text == "*" ? call.unpacked : call.unpacked_named;
      if (unpacked || (&unpacked == &call.unpacked && call.unpacked_named))
        return error_here("an argument cannot be unpacked here");
      DLLM_TRY(unpacked, parse_expression());
      if (!skip_operator(",")) break;
      continue;
    }
    const bool named = token().type == TokenType::kName && peek().type == TokenType::kOperator && peek().text == "=";
    std::string name;
    if (named) {
      name = take().text;
      take();
    }
    DLLM_TRY(ExprPtr value, parse_expression());
    if (named) {
      if (call.unpacked_named) return error_here("a named argument follows **");
      call.named.emplace_back(std::move(name), std::move(value));
    } else if (!call.named.empty() || call.unpacked || call.unpacked_named) {
      return error_here("a positional argument follows a named or unpacked one");
    } else {
      call.args.push_back(std::move(value));
    }
    if (!skip_operator(",")) break;
  }
  return expect_operator(")");
}

}  // namespace dllm::jinja
