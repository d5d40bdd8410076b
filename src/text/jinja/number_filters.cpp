#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/parse_text.h"
#include "base/try.h"
#include "text/jinja/filters.h"
#include "text/jinja/literals.h"
#include "text/jinja/named.h"
#include "text/jinja/strings.h"

namespace dllm::jinja {
namespace {

// Python's int(text) or float(text): surrounding white space, sign, underscores.
Expected<Number> read_number(const std::string& text) {
  std::string_view body = strip(text, nullptr, true, true);
  const bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  if (body.starts_with('.')) return type_error("no digits before the point");
  DLLM_TRY(Number number, parse_number(body, false));
  if (number.size != body.size()) return type_error("trailing characters");
  if (negative) {
    number.integer = -number.integer;
    number.real = -number.real;
  }
  return number;
}

Expected<Value> to_int(const FilterCall& call) {
  const Value* given = call.find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value(std::int64_t{0});
  if (call.input.integer_like()) return Value(call.input.as_integer());
  double real = 0;
  if (call.input.is<double>()) {
    real = call.input.as_double();
  } else if (call.input.text() != nullptr) {
    const auto number = read_number(*call.input.text());
    if (!number) return otherwise;
    if (!number->is_float) return Value(number->integer);
    real = number->real;
  } else {
    return otherwise;
  }
  if (!(std::fabs(real) < 9.2e18)) return otherwise;
  return Value(static_cast<std::int64_t>(real));
}

Expected<Value> to_float(const FilterCall& call) {
  const Value* given = call.find(0, "default");
  if (call.input.number()) return Value(call.input.as_double());
  if (call.input.text() != nullptr) {
    if (const auto number = read_number(*call.input.text())) {
      return Value(number->is_float ? number->real : static_cast<double>(number->integer));
    }
  }
  return given != nullptr ? *given : Value(0.0);
}

// printf rounds the exact binary value half to even, as Python's round() does.
double round_decimal(double value, int digits) {
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    return std::nearbyint(value / scale) * scale;
  }
  return parse_double(fmt::format("{:.{}f}", value, digits)).value_or(value);
}

Expected<Value> round_number(const FilterCall& call) {
  DLLM_CHECK_OK(require_defined(call.input));
  if (!call.input.number()) return type_error(fmt::format("round needs a number, not {}", call.input.type_name()));
  DLLM_TRY(const std::int64_t precision, call.integer_or(0, "precision", 0));
  DLLM_TRY(const MarkedText named, call.text_or(1, "method", "common"));
  const std::string& method = named.bytes;
  const int digits = static_cast<int>(std::clamp<std::int64_t>(precision, -300, 300));
  if (method != "common" && method != "ceil" && method != "floor") {
    return type_error("'method' of round must be common, ceil or floor");
  }
  if (method == "common") {
    if (call.input.integer_like() && digits >= 0) return Value(call.input.as_integer());
    const double rounded = round_decimal(call.input.as_double(), digits);
    if (call.input.integer_like() && std::fabs(rounded) < 9.2e18) return Value(static_cast<std::int64_t>(rounded));
    return Value(rounded);
  }
  const double scale = std::pow(10.0, digits), scaled = call.input.as_double() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Expected<Value> absolute(const FilterCall& call) {
  DLLM_CHECK_OK(require_defined(call.input));
  if (call.input.is<double>()) return Value(std::fabs(call.input.as_double()));
  if (!call.input.number()) return type_error(fmt::format("bad operand type for abs(): '{}'", call.input.type_name()));
  if (call.input.as_integer() < 0) return negate(call.input);
  return Value(call.input.as_integer());
}

Expected<Value> otherwise(const FilterCall& call) {
  const bool use = call.input.undefined() || (call.flag_or(1, "boolean", false) && !call.input.truthy());
  if (!use) return call.input;
  const Value* given = call.find(0, "default_value");
  return given != nullptr ? *given : Value(std::string());
}

}  // namespace

Filter find_number_filter(std::string_view name) {
  static constexpr Named<Filter> kFilters[] = {
      {"int", to_int},   {"float", to_float},    {"round", round_number},
      {"abs", absolute}, {"default", otherwise}, {"d", otherwise},
  };
  return find_named(kFilters, name);
}

}  // namespace dllm::jinja
