#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "text/jinja/expression_parser.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

constexpr int kMaxBlockDepth = 60;

class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Expected<Block> parse_all() {
    DLLM_TRY(Block block, parse_block({}));
    if (token().type != TokenType::kEnd) return unexpected("the end of the template");
    return block;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Statements up to `{% name` with a name among `ends`, whose `{%` is consumed and whose name is left to the caller;
  /// without `ends` up to the end of the template.
  Expected<Block> parse_block(Names ends);
  Expected<Stmt> parse_statement();
  Expected<Stmt> parse_if();
  Expected<Stmt> parse_for();
  Expected<Stmt> parse_set();
  Expected<Stmt> parse_macro();
  Expected<Stmt> parse_call();
  Expected<Stmt> parse_filter_block();
  Expected<Stmt> parse_with();
  Expected<Stmt> parse_generation();
  Expected<Stmt> parse_jump(StmtKind kind);

  Expected<Target> parse_target(bool with_attribute);
  Expected<Target> parse_target_part();
  Expected<void> parse_parameters(Stmt& stmt);
  Expected<void> finish_tag();
  /// The rest of the opening tag, the body, and `{% name %}`.
  Expected<Block> parse_body(std::string_view end);
  /// The same for what runs on its own: `break` does not leave it, and it records which special variables it reads.
  Expected<Block> parse_macro_body(std::string_view end, MacroUses& uses);

  Stmt make(StmtKind kind) const {
    Stmt stmt;
    stmt.kind = kind;
    stmt.place = token().place;
    return stmt;
  }

  int block_depth_ = 0;
  int loops_ = 0;  // around the statement, inside the innermost macro
};

Expected<void> StatementParser::finish_tag() {
  if (token().type != TokenType::kBlockEnd) return unexpected("'%}'");
  take();
  return {};
}

Expected<Block> StatementParser::parse_block(Names ends) {
  if (block_depth_ >= kMaxBlockDepth) return error_here("blocks are nested too deeply");
  ++block_depth_;
  Block block;
  while (token().type != TokenType::kEnd) {
    if (token().type == TokenType::kData) {
      Stmt stmt = make(StmtKind::kText);
      stmt.text = take().text;
      block.push_back(std::move(stmt));
    } else if (token().type == TokenType::kPrintBegin) {
      Stmt stmt = make(StmtKind::kPrint);
      take();
      DLLM_TRY(ExprPtr value, parse_tuple());
      stmt.exprs.push_back(std::move(value));
      if (token().type != TokenType::kPrintEnd) return unexpected("'}}'");
      take();
      block.push_back(std::move(stmt));
    } else {
      take();
      if (token().type == TokenType::kName && std::ranges::find(ends, token().text) != ends.end()) {
        --block_depth_;
        return block;
      }
      DLLM_TRY(Stmt stmt, parse_statement());
      block.push_back(std::move(stmt));
    }
  }
  --block_depth_;
  if (ends.size() != 0) return unexpected(fmt::format("'{{% {} %}}'", *(ends.end() - 1)));
  return block;
}

Expected<Block> StatementParser::parse_body(std::string_view end) {
  DLLM_CHECK_OK(finish_tag());
  DLLM_TRY(Block body, parse_block({end}));
  take();
  DLLM_CHECK_OK(finish_tag());
  return body;
}

Expected<Block> StatementParser::parse_macro_body(std::string_view end, MacroUses& uses) {
  const int outer_loops = std::exchange(loops_, 0);
  const MacroUses outer = std::exchange(uses_, MacroUses());
  DLLM_TRY(Block body, parse_body(end));
  uses = uses_;
  // As in Jinja, what a macro inside reads counts for the one around it.
  uses_ = {outer.varargs || uses.varargs, outer.kwargs || uses.kwargs, outer.caller || uses.caller};
  loops_ = outer_loops;
  return body;
}

Expected<Stmt> StatementParser::parse_statement() {
  if (token().type != TokenType::kName) return unexpected("the name of a statement");
  const std::string name = token().text;
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "generation") return parse_generation();
  if (name == "break") return parse_jump(StmtKind::kBreak);
  if (name == "continue") return parse_jump(StmtKind::kContinue);
  constexpr std::array<std::string_view, 10> kOther = {"include",    "import", "from",  "extends", "block",
                                                       "autoescape", "do",     "trans", "print",   "debug"};
  Error error = error_here(fmt::format("unknown statement '{}'", replace_invalid_utf8(name)));
  if (std::ranges::find(kOther, name) != kOther.end()) {
    error.code = ErrorCode::kUnsupported;
    error.what = fmt::format("the statement '{}'", name);
    error.hint = "chat templates are a subset of Jinja without it";
  }
  return error;
}

Expected<Stmt> StatementParser::parse_if() {
  Stmt stmt = make(StmtKind::kIf);
  while (true) {
    take();  // if, elif
    DLLM_TRY(ExprPtr condition, parse_tuple(false));
    stmt.exprs.push_back(std::move(condition));
    DLLM_CHECK_OK(finish_tag());
    DLLM_TRY(Block body, parse_block({"elif", "else", "endif"}));
    stmt.bodies.push_back(std::move(body));
    if (is_name("elif")) continue;
    if (skip_name("else")) {
      DLLM_TRY(Block otherwise, parse_body("endif"));
      stmt.bodies.push_back(std::move(otherwise));
    } else {
      take();
      DLLM_CHECK_OK(finish_tag());
    }
    return stmt;
  }
}

Expected<Stmt> StatementParser::parse_for() {
  Stmt stmt = make(StmtKind::kFor);
  take();
  DLLM_TRY(stmt.target, parse_target(false));
  if (!skip_name("in")) return unexpected("'in'");
  DLLM_TRY(ExprPtr items, parse_tuple(false, "recursive"));
  stmt.exprs.push_back(std::move(items));
  stmt.exprs.push_back(nullptr);
  if (skip_name("if")) {
    DLLM_TRY(stmt.exprs[1], parse_expression());
  }
  if (is_name("recursive")) {
    Error error = error_here("a recursive loop");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  DLLM_CHECK_OK(finish_tag());
  ++loops_;
  DLLM_TRY(Block body, parse_block({"else", "endfor"}));
  --loops_;
  stmt.bodies.push_back(std::move(body));
  if (skip_name("else")) {
    DLLM_TRY(Block otherwise, parse_body("endfor"));
    stmt.bodies.push_back(std::move(otherwise));
  } else {
    take();
    DLLM_CHECK_OK(finish_tag());
  }
  return stmt;
}

// name | (part, part, ...)
Expected<Target> StatementParser::parse_target_part() {
  constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::ranges::find(kConstants, token().text) != kConstants.end()) return unexpected("a variable");
  Target target;
  if (!skip_operator("(")) {
    DLLM_TRY(target.name, expect_name());
    return target;
  }
  if (block_depth_ >= kMaxBlockDepth) return error_here("the variables are nested too deeply");
  ++block_depth_;
  DLLM_TRY(target, parse_target(false));
  --block_depth_;
  DLLM_CHECK_OK(expect_operator(")"));
  return target;
}

// part | name.attribute | part, part, ...
Expected<Target> StatementParser::parse_target(bool with_attribute) {
  DLLM_TRY(Target target, parse_target_part());
  if (with_attribute && !target.unpack && skip_operator(".")) {
    DLLM_TRY(target.attribute, expect_name());
    return target;
  }
  if (!is_operator(",")) return target;
  Target tuple;
  tuple.unpack = true;
  tuple.parts.push_back(std::move(target));
  while (skip_operator(",")) {
    if ((token().type != TokenType::kName && !is_operator("(")) || is_name("in")) break;
    DLLM_TRY(Target part, parse_target_part());
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

Expected<Stmt> StatementParser::parse_set() {
  Stmt stmt = make(StmtKind::kSet);
  take();
  DLLM_TRY(stmt.target, parse_target(true));
  if (skip_operator("=")) {
    DLLM_TRY(ExprPtr value, parse_tuple());
    stmt.exprs.push_back(std::move(value));
    DLLM_CHECK_OK(finish_tag());
    return stmt;
  }
  stmt.kind = StmtKind::kSetBlock;
  stmt.exprs.push_back(nullptr);
  while (skip_operator("|")) {
    DLLM_TRY(stmt.exprs[0], parse_filter(std::move(stmt.exprs[0])));
  }
  DLLM_TRY(Block body, parse_body("endset"));
  stmt.bodies.push_back(std::move(body));
  return stmt;
}

Expected<void> StatementParser::parse_parameters(Stmt& stmt) {
  DLLM_CHECK_OK(expect_operator("("));
  while (!is_operator(")")) {
    DLLM_TRY(std::string name, expect_name());
    stmt.params.push_back(std::move(name));
    if (skip_operator("=")) {
      DLLM_TRY(ExprPtr value, parse_expression());
      stmt.exprs.push_back(std::move(value));
    } else if (stmt.kind == StmtKind::kMacro && !stmt.exprs.empty()) {
      return error_here("a parameter without default follows one with a default");
    }
    if (!skip_operator(",")) break;
  }
  return expect_operator(")");
}

Expected<Stmt> StatementParser::parse_macro() {
  Stmt stmt = make(StmtKind::kMacro);
  take();
  DLLM_TRY(stmt.text, expect_name());
  DLLM_CHECK_OK(parse_parameters(stmt));
  DLLM_TRY(Block body, parse_macro_body("endmacro", stmt.uses));
  stmt.bodies.push_back(std::move(body));
  return stmt;
}

Expected<Stmt> StatementParser::parse_call() {
  Stmt stmt = make(StmtKind::kCall);
  take();
  if (is_operator("(")) {
    DLLM_CHECK_OK(parse_parameters(stmt));
    if (!stmt.exprs.empty()) return error_here("defaults for the parameters of a call block");
  }
  DLLM_TRY(ExprPtr callee, parse_expression());
  if (callee->kind != ExprKind::kCall) return error_here("a call block needs a call");
  stmt.exprs.push_back(std::move(callee));
  DLLM_TRY(Block body, parse_macro_body("endcall", stmt.uses));
  stmt.bodies.push_back(std::move(body));
  return stmt;
}

Expected<Stmt> StatementParser::parse_filter_block() {
  Stmt stmt = make(StmtKind::kFilter);
  take();
  DLLM_TRY(ExprPtr filter, parse_filter(nullptr));
  while (skip_operator("|")) {
    DLLM_TRY(filter, parse_filter(std::move(filter)));
  }
  stmt.exprs.push_back(std::move(filter));
  DLLM_TRY(Block body, parse_body("endfilter"));
  stmt.bodies.push_back(std::move(body));
  return stmt;
}

Expected<Stmt> StatementParser::parse_with() {
  Stmt stmt = make(StmtKind::kWith);
  take();
  while (token().type != TokenType::kBlockEnd) {
    DLLM_TRY(std::string name, expect_name());
    stmt.params.push_back(std::move(name));
    DLLM_CHECK_OK(expect_operator("="));
    DLLM_TRY(ExprPtr value, parse_expression());
    stmt.exprs.push_back(std::move(value));
    if (!skip_operator(",")) break;
  }
  DLLM_TRY(Block body, parse_body("endwith"));
  stmt.bodies.push_back(std::move(body));
  return stmt;
}

Expected<Stmt> StatementParser::parse_generation() {
  Stmt stmt = make(StmtKind::kGeneration);
  take();
  const int outer = std::exchange(loops_, 0);
  DLLM_TRY(Block body, parse_body("endgeneration"));
  loops_ = outer;
  stmt.bodies.push_back(std::move(body));
  return stmt;
}

Expected<Stmt> StatementParser::parse_jump(StmtKind kind) {
  if (loops_ == 0) return error_here(fmt::format("'{}' outside of a loop", token().text));
  Stmt stmt = make(kind);
  take();
  DLLM_CHECK_OK(finish_tag());
  return stmt;
}

}  // namespace

Expected<Block> parse_template(std::string_view source) {
  DLLM_TRY(std::vector<Token> tokens, tokenize(source));
  return StatementParser(std::move(tokens)).parse_all();
}

}  // namespace dllm::jinja
