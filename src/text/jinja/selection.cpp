#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/try.h"
#include "text/jinja/filters.h"
#include "text/jinja/named.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

Arguments rest_of(const Arguments& arguments, std::size_t skip) {
  Arguments rest;
  for (std::size_t i = skip; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  rest.named = arguments.named;
  return rest;
}

Expected<std::string> name_argument(const FilterCall& call, std::size_t index) {
  const std::string* name = call.arguments.positional[index].text();
  if (name == nullptr) return type_error(fmt::format("{} needs a name", call.name));
  return *name;
}

// map('filter', ...) or map(attribute=..., default=...). This and the next take what is false (none, 0) for empty.
Expected<Value> map_items(const FilterCall& call) {
  if (!call.input.truthy()) return make_sequence({}, SequenceKind::kGenerator);
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const Value* attribute = call.arguments.positional.empty() ? call.find(0, "attribute") : nullptr;
  if (attribute == nullptr && call.arguments.positional.empty()) return type_error("map requires a filter argument");
  const Value* otherwise = call.arguments.positional.empty() ? call.find(1, "default") : nullptr;
  const Arguments rest = rest_of(call.arguments, 1);
  std::vector<Value> out;
  for (const Value& item : items->items) {
    DLLM_CHECK_OK(call.runtime.step());
    Value mapped;
    if (attribute != nullptr) {
      DLLM_TRY(mapped, attribute_path(call.runtime, item, *attribute));
      if (mapped.undefined() && otherwise != nullptr) mapped = *otherwise;
    } else {
      DLLM_TRY(const std::string name, name_argument(call, 0));
      DLLM_TRY(mapped, apply_filter(call.runtime, name, item, rest));
    }
    out.push_back(std::move(mapped));
  }
  return make_sequence(std::move(out), SequenceKind::kGenerator);
}

// select, reject, selectattr, rejectattr: by a test, or without one by truth.
Expected<Value> filter_items(const FilterCall& call) {
  if (!call.input.truthy()) return make_sequence({}, SequenceKind::kGenerator);
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const bool by_attribute = call.name.ends_with("attr"), keep = call.name.starts_with("select");
  const std::size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && call.arguments.positional.empty()) return type_error(call.name + " needs an attribute");
  const bool has_test = call.arguments.positional.size() > test_at;
  const Arguments rest = rest_of(call.arguments, test_at + 1);
  std::vector<Value> out;
  for (const Value& item : items->items) {
    DLLM_CHECK_OK(call.runtime.step());
    Value subject = item;
    if (by_attribute) {
      DLLM_TRY(subject, attribute_path(call.runtime, item, call.arguments.positional[0]));
    }
    bool chosen = subject.truthy();
    if (has_test) {
      DLLM_TRY(const std::string name, name_argument(call, test_at));
      DLLM_TRY(chosen, apply_test(call.runtime, name, subject, rest));
    }
    if (chosen == keep) out.push_back(item);
  }
  return make_sequence(std::move(out), SequenceKind::kGenerator);
}

using Test = bool (*)(const Value&);

constexpr Named<Test> kPlainTests[] = {
    {"defined", [](const Value& v) { return !v.undefined(); }},
    {"undefined", [](const Value& v) { return v.undefined(); }},
    {"none", [](const Value& v) { return v.none(); }},
    {"string", [](const Value& v) { return v.text() != nullptr; }},
    {"number", [](const Value& v) { return v.number(); }},
    {"integer", [](const Value& v) { return v.is<std::int64_t>(); }},
    {"float", [](const Value& v) { return v.is<double>(); }},
    {"boolean", [](const Value& v) { return v.is<bool>(); }},
    {"true", [](const Value& v) { return v.is<bool>() && v.as_integer() == 1; }},
    {"false", [](const Value& v) { return v.is<bool>() && v.as_integer() == 0; }},
    {"mapping", [](const Value& v) { return v.mapping() != nullptr; }},
    {"callable", [](const Value& v) { return v.is<BoundPtr>() || v.is<const Macro*>(); }},
    {"iterable",
     [](const Value& v) {
       return v.undefined() || v.text() || v.sequence() || v.mapping() || v.is<const LoopState*>();
     }},
    // Python checks for a length and items by key, which Undefined and dicts claim to have.
    {"sequence",
     [](const Value& v) {
       const Sequence* sequence = v.sequence();
       return v.undefined() || v.text() || v.mapping() || (sequence && sequence->kind != SequenceKind::kGenerator);
     }},
    {"lower", [](const Value& v) { return v.text() != nullptr && is_lower_text(*v.text()); }},
    {"upper", [](const Value& v) { return v.text() != nullptr && is_upper_text(*v.text()); }},
    {"escaped", [](const Value& v) { return v.safe(); }},
};

// Tests that are comparison operators, by their names.
std::string relation_of(std::string_view test) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"eq", "=="},         {"equalto", "=="}, {"==", "=="}, {"ne", "!="}, {"!=", "!="}, {"lt", "<"},
      {"lessthan", "<"},    {"<", "<"},        {"gt", ">"},  {">", ">"},   {"le", "<="}, {"<=", "<="},
      {"greaterthan", ">"}, {"ge", ">="},      {">=", ">="}, {"in", "in"}};
  for (const auto& [name, op] : kNames) {
    if (name == test) return std::string(op);
  }
  return {};
}

Expected<bool> divisible(Runtime& runtime, const Value& value, std::int64_t divisor, std::int64_t rest) {
  DLLM_TRY(const Value remainder, binary(runtime, "%", value, Value(divisor)));
  return equal(runtime, remainder, Value(rest));
}

// Identity, as far as values have one: the same kind and equal.
Expected<bool> same(Runtime& runtime, const Value& a, const Value& b) {
  if (a.type_name() != b.type_name()) return false;
  return equal(runtime, a, b);
}

}  // namespace

Filter find_selection_filter(std::string_view name) {
  if (name == "map") return map_items;
  const bool selects = name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr";
  return selects ? filter_items : nullptr;
}

Expected<bool> apply_test(Runtime& runtime, const std::string& name, const Value& input, const Arguments& arguments) {
  if (const Test test = find_named(kPlainTests, name)) return test(input);
  if (name == "odd") return divisible(runtime, input, 2, 1);
  if (name == "even") return divisible(runtime, input, 2, 0);
  const std::string op = relation_of(name);
  if (op.empty() && name != "divisibleby" && name != "sameas") {
    return Error{ErrorCode::kUnsupported, fmt::format("the test '{}'", replace_invalid_utf8(name)), "", ""};
  }
  if (arguments.positional.size() != 1) return type_error(fmt::format("the test '{}' needs one argument", name));
  const Value& argument = arguments.positional[0];
  if (name == "sameas") return same(runtime, input, argument);
  if (name == "divisibleby") {
    if (!argument.integer_like()) return type_error("the test 'divisibleby' needs an integer");
    return divisible(runtime, input, argument.as_integer(), 0);
  }
  return relation(runtime, op, input, argument);
}

}  // namespace dllm::jinja
