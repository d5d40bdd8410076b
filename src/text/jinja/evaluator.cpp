#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/scope_guard.h"
#include "text/utf8.h"

namespace dllm::jinja {

Expected<Value> Interpreter::eval(const Expr& expr) {
  const DepthGuard guard(depth_);
  auto value =
      depth_ > runtime_.limits().depth ? Expected<Value>(limit_error("calls are nested too deeply")) : eval_node(expr);
  if (!value) return at_place(std::move(value).error(), expr.place);
  return value;
}

Expected<Value> Interpreter::eval_node(const Expr& expr) {
  DLLM_CHECK_OK(runtime_.step());
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.literal;
    case ExprKind::kName:
      return eval_name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
      return eval_collection(expr);
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kConditional:
      return eval_conditional(expr);
    case ExprKind::kSlice:
      return eval_slice(expr);
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return eval_filter(expr);
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus:
    case ExprKind::kBinary:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kAttribute:
    case ExprKind::kItem:
      break;
  }
  return eval_operator(expr);
}

Expected<Value> Interpreter::eval_operator(const Expr& expr) {
  DLLM_TRY(Value left, eval(*expr.args[0]));
  switch (expr.kind) {
    case ExprKind::kNot:
      return Value(!left.truthy());
    case ExprKind::kNegate:
      return negate(left);
    case ExprKind::kPlus: {
      DLLM_TRY(const Value negative, negate(left));
      return left.is<bool>() ? Value(left.as_integer()) : left;
    }
    case ExprKind::kAnd:
      return left.truthy() ? eval(*expr.args[1]) : left;
    case ExprKind::kOr:
      return left.truthy() ? left : eval(*expr.args[1]);
    case ExprKind::kAttribute:
      return get_attribute(runtime_, left, expr.text);
    default:
      break;
  }
  DLLM_TRY(const Value right, eval(*expr.args[1]));
  if (expr.kind == ExprKind::kItem) return get_item(runtime_, left, right);
  return binary(runtime_, expr.text, left, right);
}

Expected<Value> Interpreter::eval_name(const Expr& expr) {
  if (const Value* found = scope_->find(expr.text)) return *found;
  if (is_global(expr.text)) return Value(std::make_shared<const Bound>(Bound{Value(), expr.text}));
  return undefined_value(fmt::format("'{}' is undefined", replace_invalid_utf8(expr.text)));
}

Expected<Value> Interpreter::eval_collection(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& arg : expr.args) {
    DLLM_TRY(Value item, eval(*arg));
    items.push_back(std::move(item));
  }
  if (expr.kind != ExprKind::kDict) {
    return make_sequence(std::move(items), expr.kind == ExprKind::kTuple ? SequenceKind::kTuple : SequenceKind::kList);
  }
  Mapping mapping;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    DLLM_CHECK_OK(require_defined(items[i]));
    if (items[i].mapping() != nullptr || items[i].type_name() == "list") {
      return type_error(fmt::format("unhashable type: '{}'", items[i].type_name()));
    }
    DLLM_CHECK_OK(set_entry(runtime_, mapping, std::move(items[i]), std::move(items[i + 1])));
  }
  return make_mapping(std::move(mapping));
}

Expected<Value> Interpreter::eval_concat(const Expr& expr) {
  MarkedText text;
  for (const ExprPtr& arg : expr.args) {
    DLLM_TRY(const Value part, eval(*arg));
    DLLM_TRY(const MarkedText printed, runtime_.str(part));
    text.append(printed);
  }
  return runtime_.text(std::move(text));
}

// a < b < c evaluates b once and stops at the first false.
Expected<Value> Interpreter::eval_compare(const Expr& expr) {
  DLLM_TRY(Value left, eval(*expr.args[0]));
  for (std::size_t i = 0; i < expr.names.size(); ++i) {
    DLLM_TRY(Value right, eval(*expr.args[i + 1]));
    DLLM_TRY(const bool holds, relation(runtime_, expr.names[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Expected<Value> Interpreter::eval_conditional(const Expr& expr) {
  DLLM_TRY(const Value condition, eval(*expr.args[1]));
  if (condition.truthy()) return eval(*expr.args[0]);
  if (expr.args.size() > 2) return eval(*expr.args[2]);
  return undefined_value("the inline if-expression evaluated to false and no else section was defined.");
}

Expected<Value> Interpreter::eval_slice(const Expr& expr) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i) {
    if (!expr.args[i]) continue;
    DLLM_TRY(parts[i], eval(*expr.args[i]));
  }
  return get_slice(runtime_, parts[0], parts[1], parts[2], parts[3]);
}

Expected<Arguments> Interpreter::eval_arguments(const Expr& expr) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.args.size(); ++i) {
    DLLM_TRY(Value value, eval(*expr.args[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : expr.named) {
    DLLM_TRY(Value value, eval(*arg));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (expr.unpacked) {
    DLLM_TRY(const Value given, eval(*expr.unpacked));
    DLLM_TRY(const SequencePtr items, runtime_.iterate(given));
    arguments.positional.insert(arguments.positional.end(), items->items.begin(), items->items.end());
  }
  if (expr.unpacked_named) {
    DLLM_TRY(const Value given, eval(*expr.unpacked_named));
    if (given.mapping() == nullptr) return type_error("the argument after ** must be a mapping");
    for (const auto& [key, value] : given.mapping()->entries) {
      if (key.text() == nullptr) return type_error("keywords must be strings");
      DLLM_CHECK_OK(runtime_.step());
      arguments.named.emplace_back(*key.text(), value);
    }
  }
  return arguments;
}

Expected<Value> Interpreter::eval_call(const Expr& expr) {
  DLLM_TRY(const Value callee, eval(*expr.args[0]));
  DLLM_TRY(const Arguments arguments, eval_arguments(expr));
  return call(callee, arguments);
}

Expected<Value> Interpreter::eval_filter(const Expr& expr) {
  DLLM_TRY(const Value input, eval(*expr.args[0]));
  DLLM_TRY(const Arguments arguments, eval_arguments(expr));
  if (expr.kind == ExprKind::kFilter) return apply_filter(runtime_, expr.text, input, arguments);
  DLLM_TRY(const bool holds, apply_test(runtime_, expr.text, input, arguments));
  return Value(holds);
}

Expected<Value> Interpreter::eval_filter_chain(const Expr& expr, const Value& input) {
  const DepthGuard guard(depth_);
  if (depth_ > runtime_.limits().depth) return limit_error("calls are nested too deeply");
  Value inner = input;
  if (expr.args[0]) {
    DLLM_TRY(inner, eval_filter_chain(*expr.args[0], input));
  }
  DLLM_TRY(const Arguments arguments, eval_arguments(expr));
  auto value = apply_filter(runtime_, expr.text, inner, arguments);
  if (!value) return at_place(std::move(value).error(), expr.place);
  return value;
}

Expected<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  DLLM_CHECK_OK(require_defined(callee));
  if (const Macro* const* macro = callee.get<const Macro*>()) return call_macro(**macro, arguments);
  const BoundPtr* bound = callee.get<BoundPtr>();
  if (bound == nullptr) return type_error(fmt::format("'{}' object is not callable", callee.type_name()));
  const auto& [self, name] = **bound;
  return self.none() ? call_global(runtime_, name, arguments) : call_method(runtime_, self, name, arguments);
}

// What goes beyond the parameters: `caller`, and if the body reads them `varargs` and `kwargs`.
Expected<void> Interpreter::bind_rest(const Stmt& definition, const Arguments& arguments) {
  const std::vector<std::string>& params = definition.params;
  const std::string_view name = definition.kind == StmtKind::kMacro ? std::string_view(definition.text) : "caller";
  const std::size_t taken = std::min(params.size(), arguments.positional.size());
  std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                          arguments.positional.end());
  if (!rest.empty() && !definition.uses.varargs)
    return type_error(fmt::format("'{}' takes no more than {} arguments", name, params.size()));
  Mapping keywords;
  Value caller = undefined_value("No caller defined");
  for (const auto& [key, value] : arguments.named) {
    const auto param = std::ranges::find(params, key);
    if (param != params.end()) {
      if (static_cast<std::size_t>(param - params.begin()) < taken)
        return type_error(fmt::format("'{}' got multiple values for '{}'", name, key));
      continue;
    }
    if (key == "caller" && definition.uses.caller) {
      caller = value;
    } else if (definition.uses.kwargs) {
      DLLM_CHECK_OK(set_entry(runtime_, keywords, Value(key), value));
    } else {
      return type_error(fmt::format("'{}' has no parameter '{}'", name, key));
    }
  }
  const auto has = [&](const char* special) { return std::ranges::find(params, special) != params.end(); };
  if (definition.uses.caller && !has("caller")) scope_->variables.insert_or_assign("caller", std::move(caller));
  if (definition.uses.varargs && !has("varargs")) {
    DLLM_TRY(Value made, make_sequence(std::move(rest), SequenceKind::kTuple));
    scope_->variables.insert_or_assign("varargs", std::move(made));
  }
  if (definition.uses.kwargs && !has("kwargs")) {
    DLLM_TRY(Value made, make_mapping(std::move(keywords)));
    scope_->variables.insert_or_assign("kwargs", std::move(made));
  }
  return {};
}

Expected<void> Interpreter::bind_parameters(const Stmt& definition, const Arguments& arguments) {
  const std::vector<std::string>& params = definition.params;
  // Each name is looked for among the others.
  DLLM_CHECK_OK(runtime_.step(static_cast<std::int64_t>(params.size() * arguments.named.size() / 16)));
  DLLM_CHECK_OK(bind_rest(definition, arguments));
  const std::size_t defaults = definition.kind == StmtKind::kMacro ? definition.exprs.size() : 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    Value bound = undefined_value(fmt::format("parameter '{}' was not provided", params[i]));
    if (const Value* given = arguments.find(i, params[i])) {
      bound = *given;
    } else if (i + defaults >= params.size()) {
      DLLM_TRY(bound, eval(*definition.exprs[i + defaults - params.size()]));
    }
    scope_->variables.insert_or_assign(params[i], std::move(bound));
  }
  return {};
}

Expected<Value> Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  DLLM_TRY(ScopePtr inner, runtime_.make_scope(macro.scope));
  const ScopeGuard guard(scope_, std::move(inner));
  DLLM_CHECK_OK(bind_parameters(*macro.definition, arguments));
  return capture(macro.definition->bodies[0]);
}

}  // namespace dllm::jinja
