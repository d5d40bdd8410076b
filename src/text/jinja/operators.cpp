#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "text/jinja/format.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"

namespace dllm::jinja {
namespace {

Error overflow() { return type_error("an integer leaves the range of 64 bits"); }

Error no_operator(const std::string& op, const Value& a, const Value& b) {
  return type_error(fmt::format("unsupported operand types for {}: '{}' and '{}'", op, a.type_name(), b.type_name()));
}

// Floor division and its remainder: Python rounds towards minus infinity.
Expected<Value> integer_division(bool remainder, std::int64_t a, std::int64_t b) {
  if (b == 0) return type_error("division by zero");
  if (b == -1) {
    if (remainder) return Value(std::int64_t{0});
    if (a == INT64_MIN) return overflow();
    return Value(-a);
  }
  std::int64_t quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value(remainder ? rest : quotient);
}

Expected<Value> integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value(result);
}

Expected<Value> integers(const std::string& op, const Value& left, const Value& right) {
  const std::int64_t a = left.as_integer(), b = right.as_integer();
  std::int64_t result = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &result) ? Expected<Value>(overflow()) : Value(result);
  if (op == "-") return __builtin_sub_overflow(a, b, &result) ? Expected<Value>(overflow()) : Value(result);
  if (op == "*") return __builtin_mul_overflow(a, b, &result) ? Expected<Value>(overflow()) : Value(result);
  if (op == "//" || op == "%") return integer_division(op == "%", a, b);
  return integer_power(a, b);
}

Expected<Value> reals(const std::string& op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") {
    if (a == 0.0 && b < 0.0) return type_error("0.0 cannot be raised to a negative power");
    if (a < 0.0 && b != std::floor(b)) return type_error("a negative number to a fractional power is not real");
    return Value(std::pow(a, b));
  }
  if (b == 0.0) return type_error("division by zero");
  if (op == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0.0 && (rest < 0.0) != (b < 0.0)) rest += b;
  if (op == "%") return Value(rest);
  return Value(std::floor((a - rest) / b + 0.5));
}

Expected<Value> concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    const bool safe = a.safe() || b.safe();  // then the other one is escaped
    MarkedText both;
    if (safe) {
      DLLM_TRY(both, escaped(runtime, a));
      DLLM_TRY(const MarkedText second, escaped(runtime, b));
      both.append(second);
    } else {
      DLLM_CHECK_OK(runtime.allocate(a.text()->size() + b.text()->size()));
      both = *a.marked();
      both.append(*b.marked());
    }
    return Value(std::move(both), safe);
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x == nullptr || y == nullptr || x->kind != y->kind || x->kind == SequenceKind::kGenerator) {
    return no_operator("+", a, b);
  }
  DLLM_CHECK_OK(runtime.step(static_cast<std::int64_t>(x->items.size() + y->items.size())));
  std::vector<Value> items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  return make_sequence(std::move(items), x->kind);
}

Expected<Value> repeat(Runtime& runtime, const Value& a, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(times, 0, INT32_MAX));
  if (const MarkedText* text = a.marked()) {
    DLLM_CHECK_OK(runtime.allocate(text->bytes.size() * count));
    MarkedText out;
    for (std::size_t i = 0; i < count && !text->bytes.empty(); ++i) out.append(*text);
    return Value(std::move(out), a.safe());
  }
  const Sequence& sequence = *a.sequence();
  // Repeating an empty list costs nothing, however often.
  DLLM_CHECK_OK(runtime.step(static_cast<std::int64_t>(sequence.items.size() * count)));
  std::vector<Value> items;
  for (std::size_t i = 0; i < count && !sequence.items.empty(); ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(std::move(items), sequence.kind);
}

bool repeatable(const Value& value) {
  return value.text() != nullptr || (value.sequence() != nullptr && value.sequence()->kind != SequenceKind::kGenerator);
}

Expected<bool> contains(Runtime& runtime, const Value& item, const Value& container) {
  DLLM_CHECK_OK(runtime.scan(container));
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr) {
      return type_error(fmt::format("'in <string>' requires a string as left operand, not {}", item.type_name()));
    }
    return find_first(*text, *item.text()).has_value();
  }
  if (const Mapping* mapping = container.mapping()) {
    DLLM_TRY(const Value* found, find_entry(runtime, *mapping, item));
    return found != nullptr;
  }
  DLLM_TRY(const SequencePtr items, runtime.iterate(container));
  DLLM_TRY(const std::size_t at, index_of(runtime, items->items, item));
  return at < items->items.size();
}

}  // namespace

Expected<Value> binary(Runtime& runtime, const std::string& op, const Value& a, const Value& b) {
  if (op == "%" && a.text() != nullptr) {
    DLLM_TRY(MarkedText text, percent_format(runtime, *a.marked(), a.safe(), b));
    return runtime.text(std::move(text), a.safe());
  }
  DLLM_CHECK_OK(require_defined(a));
  DLLM_CHECK_OK(require_defined(b));
  if (a.number() && b.number()) {
    const bool real = a.is<double>() || b.is<double>() || op == "/" || (op == "**" && b.as_integer() < 0);
    return real ? reals(op, a.as_double(), b.as_double()) : integers(op, a, b);
  }
  if (op == "+") return concatenate(runtime, a, b);
  if (op == "*" && repeatable(a) && b.integer_like()) return repeat(runtime, a, b.as_integer());
  if (op == "*" && a.integer_like() && repeatable(b)) return repeat(runtime, b, a.as_integer());
  return no_operator(op, a, b);
}

Expected<bool> relation(Runtime& runtime, const std::string& op, const Value& a, const Value& b) {
  if (op == "==" || op == "!=") {
    DLLM_TRY(const bool same, equal(runtime, a, b));
    return same == (op == "==");
  }
  if (op == "in") return contains(runtime, a, b);
  if (op == "not in") {
    DLLM_TRY(const bool inside, contains(runtime, a, b));
    return !inside;
  }
  const bool nan = a.number() && b.number() && (std::isnan(a.as_double()) || std::isnan(b.as_double()));
  if (nan) return false;
  DLLM_TRY(const int order, compare(runtime, a, b));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

Expected<Value> negate(const Value& value) {
  DLLM_CHECK_OK(require_defined(value));
  if (value.is<double>()) return Value(-value.as_double());
  if (!value.number()) return type_error(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
  if (value.as_integer() == INT64_MIN) return overflow();
  return Value(-value.as_integer());
}

}  // namespace dllm::jinja
