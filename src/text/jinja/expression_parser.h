#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace dllm::jinja {

/// Recursive descent over Jinja2's expression grammar; the statement parser derives from it.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  /// One expression; with `conditional` also `a if b else c`.
  Expected<ExprPtr> parse_expression(bool conditional = true);
  /// One expression, or several with commas as a tuple. Stops before the name `stop`.
  Expected<ExprPtr> parse_tuple(bool conditional = true, std::string_view stop = {});
  /// A filter name with arguments; `input` may be null.
  Expected<ExprPtr> parse_filter(ExprPtr input);
  Expected<ExprPtr> parse_postfix(ExprPtr node);
  Expected<ExprPtr> parse_primary();
  Expected<ExprPtr> parse_unary(bool with_filter = true);

  const Token& token() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_operator(std::string_view op) const { return token().type == TokenType::kOperator && token().text == op; }
  bool is_name(std::string_view name) const { return token().type == TokenType::kName && token().text == name; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Expected<void> expect_operator(std::string_view op);
  Expected<std::string> expect_name();
  Error unexpected(std::string_view wanted) const;
  Error error_here(std::string what) const;

  ExprPtr node(ExprKind kind, Place place, std::string text = "") const;
  /// Fails if the tree below `made` is too high.
  Expected<ExprPtr> finish(ExprPtr made) const;

  MacroUses uses_;  ///< by the expressions parsed so far

 private:
  using Rule = Expected<ExprPtr> (ExpressionParser::*)();

  Expected<ExprPtr> parse_conditional();
  Expected<ExprPtr> parse_or();
  Expected<ExprPtr> parse_and();
  Expected<ExprPtr> parse_not();
  Expected<ExprPtr> parse_compare();
  Expected<ExprPtr> parse_sum();
  Expected<ExprPtr> parse_concat();
  Expected<ExprPtr> parse_product();
  Expected<ExprPtr> parse_power();
  Expected<ExprPtr> parse_unary_filtered() { return parse_unary(true); }
  Expected<ExprPtr> parse_binary(Rule operand, std::initializer_list<std::string_view> operators);
  Expected<ExprPtr> parse_filters(ExprPtr node);
  Expected<ExprPtr> parse_test(ExprPtr input);
  Expected<ExprPtr> parse_subscript(ExprPtr object);
  Expected<ExprPtr> parse_list();
  Expected<ExprPtr> parse_dict();
  Expected<ExprPtr> parse_strings();
  Expected<void> parse_arguments(Expr& call);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;

  friend class ParseDepthGuard;
};

}  // namespace dllm::jinja
