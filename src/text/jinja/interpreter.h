#pragma once

#include <string>
#include <vector>

#include "dllm/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {

/// Walks the tree of a template once. The statements write to `out`; blocks that capture text replace it temporarily.
class Interpreter {
 public:
  Interpreter(Runtime& runtime, ScopePtr globals) : runtime_(runtime), scope_(std::move(globals)) {}

  Expected<MarkedText> render(const Block& block);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class ScopeGuard;

  // Statements (jinja_interpreter.cpp).
  Expected<Flow> run(const Block& block);
  Expected<Flow> run(const Stmt& stmt);
  Expected<Flow> run_stmt(const Stmt& stmt);
  Expected<Flow> run_if(const Stmt& stmt);
  Expected<Flow> run_for(const Stmt& stmt);
  Expected<SequencePtr> loop_items(const Stmt& stmt);
  Expected<Flow> run_iterations(const Stmt& stmt, const SequencePtr& items);
  Expected<Flow> run_scoped(const Stmt& stmt);
  Expected<Flow> run_call(const Stmt& stmt);
  /// Renders a block to a separate text, in its own scope.
  Expected<Value> capture(const Block& block);
  Expected<void> assign(const Target& target, const Value& value);
  Expected<void> write(std::string_view markup);
  Expected<void> write(const MarkedText& text);
  Expected<void> check_output(std::size_t more) const;

  // Expressions (jinja_evaluator.cpp).
  Expected<Value> eval(const Expr& expr);
  Expected<Value> eval_node(const Expr& expr);
  Expected<Value> eval_name(const Expr& expr);
  Expected<Value> eval_collection(const Expr& expr);
  Expected<Value> eval_concat(const Expr& expr);
  Expected<Value> eval_compare(const Expr& expr);
  Expected<Value> eval_conditional(const Expr& expr);
  Expected<Value> eval_slice(const Expr& expr);
  Expected<Value> eval_operator(const Expr& expr);
  Expected<Value> eval_call(const Expr& expr);
  Expected<Value> eval_filter(const Expr& expr);
  /// {% filter %} and {% set x | f %}: the innermost input of the chain is empty, and stands for `input`.
  Expected<Value> eval_filter_chain(const Expr& expr, const Value& input);
  Expected<Arguments> eval_arguments(const Expr& expr);
  Expected<Value> call(const Value& callee, const Arguments& arguments);
  Expected<Value> call_macro(const Macro& macro, const Arguments& arguments);
  Expected<void> bind_rest(const Stmt& definition, const Arguments& arguments);
  Expected<void> bind_parameters(const Stmt& definition, const Arguments& arguments);

  Runtime& runtime_;
  ScopePtr scope_;
  MarkedText out_;
  int depth_ = 0;
};

}  // namespace dllm::jinja
