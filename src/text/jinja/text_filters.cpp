#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/literals.h"
#include "text/jinja/strings.h"

namespace dllm::jinja {
namespace {

template <std::string (*Function)(std::string_view)>
Expected<Value> map_filter(const FilterCall& call) {
  DLLM_TRY(const std::string text, call.input_text());
  return call.runtime.text(Function(text));
}

Expected<Value> trim(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_marked());
  const Value* set = call.find(0, "chars");
  if (set == nullptr || set->none()) return call.runtime.text(text.part(strip(text.bytes, nullptr, true, true)));
  if (set->text() == nullptr) return type_error("'chars' of trim must be a string");
  const std::string_view members = *set->text();
  return call.runtime.text(text.part(strip(text.bytes, &members, true, true)));
}

Expected<Value> to_string(const FilterCall& call) {
  if (call.input.text() != nullptr) return call.input;
  DLLM_TRY(MarkedText text, call.input_marked());
  return Value(std::move(text));
}

Expected<Value> replace_filter(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_marked());
  const Value* by = call.find(1, "new");
  if (by == nullptr) return type_error("replace needs 'old' and 'new'");
  DLLM_TRY(const std::string from, call.text_or(0, "old", ""));
  DLLM_TRY(const MarkedText to, call.runtime.marked_str(*by));
  const Value* limit = call.find(2, "count");
  std::int64_t count = -1;
  if (limit != nullptr && !limit->none()) {
    DLLM_TRY(count, call.integer_or(2, "count", -1));
  }
  const long clamped = static_cast<long>(std::clamp<std::int64_t>(count, -1, INT32_MAX));
  DLLM_CHECK_OK(call.runtime.allocate(replaced_size(text.bytes, from, to.bytes, clamped)));
  return Value(replace(text, from, to, clamped));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Expected<Value> indent(const FilterCall& call) {
  DLLM_TRY(const std::string text, call.input_text());
  const Value* width = call.find(0, "width");
  std::string margin(4, ' ');
  if (width != nullptr && width->text() != nullptr) {
    margin = *width->text();
  } else {
    DLLM_TRY(const std::int64_t size, call.integer_or(0, "width", 4));
    if (size > 1000) return limit_error("an indentation of more than 1000");
    margin.assign(static_cast<std::size_t>(std::max<std::int64_t>(size, 0)), ' ');
  }
  const bool first = call.flag_or(1, "first", false), blank = call.flag_or(2, "blank", false);
  // As in Jinja: because of the newline added here, a trailing newline of the text counts as an empty last line.
  const std::string closed = text + "\n";
  const auto lines = split_lines(closed);
  DLLM_CHECK_OK(call.runtime.allocate(text.size() + lines.size() * margin.size()));
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += margin;
    out += lines[i];
  }
  return call.runtime.charged(std::move(out));
}

Expected<Value> tojson(const FilterCall& call) {
  JsonStyle style;
  style.ascii = call.flag_or(0, "ensure_ascii", false);
  if (const Value* indentation = call.find(1, "indent"); indentation != nullptr && !indentation->none()) {
    DLLM_TRY(const std::int64_t size, call.integer_or(1, "indent", 0));
    style.indent = static_cast<int>(std::clamp<std::int64_t>(size, 0, 64));
  }
  if (const Value* separators = call.find(2, "separators"); separators != nullptr && !separators->none()) {
    const Sequence* pair = separators->sequence();
    if (pair == nullptr || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text()) {
      return type_error("'separators' of tojson must be two strings");
    }
    style.item_separator = *pair->items[0].text();
    style.key_separator = *pair->items[1].text();
  } else if (style.indent >= 0) {
    style.item_separator = ",";
  }
  style.sort_keys = call.flag_or(3, "sort_keys", false);
  DLLM_TRY(std::string json, to_json(call.input, style, call.runtime.limits().output));
  return call.runtime.text(std::move(json));
}

Expected<Value> format_filter(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_marked());
  DLLM_TRY(const Value arguments, make_sequence(call.arguments.positional, SequenceKind::kTuple));
  DLLM_TRY(MarkedText out, percent_format(call.runtime, text, arguments));
  return Value(std::move(out));
}

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
  return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

Expected<Value> round_number(const FilterCall& call) {
  DLLM_CHECK_OK(require_defined(call.input));
  if (!call.input.number()) return type_error(fmt::format("round needs a number, not {}", call.input.type_name()));
  DLLM_TRY(const std::int64_t precision, call.integer_or(0, "precision", 0));
  DLLM_TRY(const std::string method, call.text_or(1, "method", "common"));
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

Expected<Value> identity(const FilterCall& call) { return call.input; }

}  // namespace

Filter find_text_filter(std::string_view name) {
  static const std::map<std::string, Filter, std::less<>> filters = {
      {"trim", trim},
      {"upper", map_filter<upper>},
      {"lower", map_filter<lower>},
      {"capitalize", map_filter<capitalize>},
      {"title", map_filter<title_filter>},
      {"string", to_string},
      {"replace", replace_filter},
      {"escape", map_filter<escape_html>},
      {"e", map_filter<escape_html>},
      {"indent", indent},
      {"tojson", tojson},
      {"format", format_filter},
      {"int", to_int},
      {"float", to_float},
      {"round", round_number},
      {"abs", absolute},
      {"default", otherwise},
      {"d", otherwise},
      {"safe", identity},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace dllm::jinja
