#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "text/jinja/scope_guard.h"

namespace dllm::jinja {

Expected<MarkedText> Interpreter::render(const Block& block) {
  DLLM_TRY(const Flow flow, run(block));
  static_cast<void>(flow);
  return std::move(out_);
}

Expected<void> Interpreter::check_output(std::size_t more) const {
  if (out_.bytes.size() + more <= runtime_.limits().output) return {};
  return limit_error(fmt::format("the output grows beyond {} bytes", runtime_.limits().output));
}

Expected<void> Interpreter::write(std::string_view markup) {
  DLLM_CHECK_OK(check_output(markup.size()));
  out_.append(markup);
  return {};
}

Expected<void> Interpreter::write(const MarkedText& text) {
  DLLM_CHECK_OK(check_output(text.bytes.size()));
  out_.append(text);
  return {};
}

Expected<Interpreter::Flow> Interpreter::run(const Block& block) {
  for (const Stmt& stmt : block) {
    DLLM_TRY(const Flow flow, run(stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Expected<Interpreter::Flow> Interpreter::run(const Stmt& stmt) {
  const DepthGuard guard(depth_);
  auto done =
      depth_ > runtime_.limits().depth ? Expected<Flow>(limit_error("calls are nested too deeply")) : run_stmt(stmt);
  if (!done) return at_place(std::move(done).error(), stmt.place);
  return done;
}

Expected<Interpreter::Flow> Interpreter::run_stmt(const Stmt& stmt) {
  DLLM_CHECK_OK(runtime_.step());
  switch (stmt.kind) {
    case StmtKind::kText:
      DLLM_CHECK_OK(write(std::string_view(stmt.text)));
      return Flow::kNext;
    case StmtKind::kPrint: {
      DLLM_TRY(const Value value, eval(*stmt.exprs[0]));
      if (const MarkedText* text = value.marked()) {
        DLLM_CHECK_OK(write(*text));
      } else {
        DLLM_TRY(const MarkedText printed, runtime_.str(value));
        DLLM_CHECK_OK(write(printed));
      }
      return Flow::kNext;
    }
    case StmtKind::kIf:
      return run_if(stmt);
    case StmtKind::kFor:
      return run_for(stmt);
    case StmtKind::kSet: {
      DLLM_TRY(const Value value, eval(*stmt.exprs[0]));
      DLLM_CHECK_OK(assign(stmt.target, value));
      return Flow::kNext;
    }
    case StmtKind::kSetBlock: {
      DLLM_TRY(Value text, capture(stmt.bodies[0]));
      if (stmt.exprs[0]) {
        DLLM_TRY(text, eval_filter_chain(*stmt.exprs[0], text));
      }
      DLLM_CHECK_OK(assign(stmt.target, text));
      return Flow::kNext;
    }
    case StmtKind::kMacro:
      scope_->variables.insert_or_assign(stmt.text,
                                         Value(static_cast<const Macro*>(runtime_.make_macro(&stmt, scope_))));
      return Flow::kNext;
    case StmtKind::kCall:
      return run_call(stmt);
    case StmtKind::kFilter: {
      DLLM_TRY(const Value text, capture(stmt.bodies[0]));
      DLLM_TRY(const Value filtered, eval_filter_chain(*stmt.exprs[0], text));
      DLLM_TRY(const MarkedText printed, runtime_.str(filtered));
      DLLM_CHECK_OK(write(printed));
      return Flow::kNext;
    }
    case StmtKind::kWith:
    case StmtKind::kGeneration:
      return run_scoped(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Expected<Interpreter::Flow> Interpreter::run_if(const Stmt& stmt) {
  for (std::size_t i = 0; i < stmt.exprs.size(); ++i) {
    DLLM_TRY(const Value condition, eval(*stmt.exprs[i]));
    if (condition.truthy()) return run(stmt.bodies[i]);
  }
  return stmt.bodies.size() > stmt.exprs.size() ? run(stmt.bodies.back()) : Flow::kNext;
}

Expected<void> Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* object = scope_->find(target.name);
    Namespace* const* ns = object != nullptr ? object->get<Namespace*>() : nullptr;
    if (ns == nullptr) return type_error("cannot assign attribute on non-namespace object");
    DLLM_CHECK_OK(runtime_.step(static_cast<std::int64_t>((*ns)->attributes.entries.size() / 16)));
    (*ns)->attributes.set_text(target.attribute, value);
    return {};
  }
  if (!target.unpack) {
    scope_->variables.insert_or_assign(target.name, value);
    return {};
  }
  DLLM_CHECK_OK(require_defined(value));
  DLLM_TRY(const SequencePtr items, runtime_.iterate(value));
  if (items->items.size() != target.parts.size()) {
    return type_error(
        fmt::format("cannot unpack {} values into {} variables", items->items.size(), target.parts.size()));
  }
  for (std::size_t i = 0; i < target.parts.size(); ++i) DLLM_CHECK_OK(assign(target.parts[i], items->items[i]));
  return {};
}

Expected<SequencePtr> Interpreter::loop_items(const Stmt& stmt) {
  DLLM_TRY(const Value iterable, eval(*stmt.exprs[0]));
  DLLM_TRY(SequencePtr items, runtime_.iterate(iterable));
  if (!stmt.exprs[1]) return items;
  auto chosen = std::make_shared<Sequence>();
  for (const Value& item : items->items) {
    DLLM_TRY(ScopePtr inner, runtime_.make_scope(scope_));
    const ScopeGuard guard(scope_, std::move(inner));
    DLLM_CHECK_OK(assign(stmt.target, item));
    DLLM_TRY(const Value keep, eval(*stmt.exprs[1]));
    if (keep.truthy()) chosen->items.push_back(item);
  }
  return SequencePtr(std::move(chosen));
}

Expected<Interpreter::Flow> Interpreter::run_for(const Stmt& stmt) {
  DLLM_TRY(const SequencePtr items, loop_items(stmt));
  if (!items->items.empty()) return run_iterations(stmt, items);
  if (stmt.bodies.size() < 2) return Flow::kNext;
  DLLM_TRY(ScopePtr inner, runtime_.make_scope(scope_));
  const ScopeGuard guard(scope_, std::move(inner));
  return run(stmt.bodies[1]);
}

// Every iteration has its own scope: what it sets is gone in the next one, as in Jinja.
Expected<Interpreter::Flow> Interpreter::run_iterations(const Stmt& stmt, const SequencePtr& items) {
  LoopState* loop = runtime_.make_loop(items);
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    loop->index = i;
    DLLM_CHECK_OK(runtime_.step());
    DLLM_TRY(ScopePtr inner, runtime_.make_scope(scope_));
    const ScopeGuard guard(scope_, std::move(inner));
    scope_->variables.insert_or_assign("loop", Value(static_cast<const LoopState*>(loop)));
    DLLM_CHECK_OK(assign(stmt.target, items->items[i]));
    DLLM_TRY(const Flow flow, run(stmt.bodies[0]));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

// {% with %}: the values are evaluated outside the scope that they fill. {% generation %} has no scope.
Expected<Interpreter::Flow> Interpreter::run_scoped(const Stmt& stmt) {
  DLLM_TRY(ScopePtr inner, runtime_.make_scope(scope_));
  for (std::size_t i = 0; i < stmt.exprs.size(); ++i) {
    DLLM_TRY(Value value, eval(*stmt.exprs[i]));
    inner->variables.insert_or_assign(stmt.params[i], std::move(value));
  }
  const ScopeGuard guard(scope_, std::move(inner));
  return run(stmt.bodies[0]);
}

// {% call(params) f(args) %}body{% endcall %}: f sees the body as the macro `caller`.
Expected<Interpreter::Flow> Interpreter::run_call(const Stmt& stmt) {
  const Expr& expr = *stmt.exprs[0];
  DLLM_TRY(const Value callee, eval(*expr.args[0]));
  DLLM_TRY(Arguments arguments, eval_arguments(expr));
  arguments.named.emplace_back("caller", Value(static_cast<const Macro*>(runtime_.make_macro(&stmt, scope_))));
  DLLM_TRY(const Value result, call(callee, arguments));
  DLLM_TRY(const MarkedText text, runtime_.str(result));
  DLLM_CHECK_OK(write(text));
  return Flow::kNext;
}

Expected<Value> Interpreter::capture(const Block& block) {
  DLLM_TRY(ScopePtr inner, runtime_.make_scope(scope_));
  const ScopeGuard guard(scope_, std::move(inner));
  MarkedText outer = std::exchange(out_, MarkedText());
  const auto flow = run(block);
  MarkedText captured = std::exchange(out_, std::move(outer));
  if (!flow) return flow.error();
  return runtime_.text(std::move(captured));
}

}  // namespace dllm::jinja
