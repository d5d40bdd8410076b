#include "text/jinja/value.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {

Error type_error(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "", ""}; }
Error limit_error(std::string what) { return {ErrorCode::kResource, std::move(what), "", ""}; }

const Value* Mapping::find_text(std::string_view key) const {
  for (const auto& [known, value] : entries) {
    if (const std::string* text = known.text(); text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

void Mapping::set_text(const std::string& key, Value value) {
  for (auto& [known, old] : entries) {
    if (known.text() == nullptr || *known.text() != key) continue;
    old = std::move(value);
    return;
  }
  entries.emplace_back(Value(key), std::move(value));
}

std::int64_t Value::as_integer() const {
  const bool* flag = get<bool>();
  return flag != nullptr ? static_cast<std::int64_t>(*flag) : *get<std::int64_t>();
}

double Value::as_double() const {
  const double* real = get<double>();
  return real != nullptr ? *real : static_cast<double>(as_integer());
}

bool Value::truthy() const {
  if (undefined() || none()) return false;
  if (number()) return as_double() != 0.0;
  if (const std::string* t = text()) return !t->empty();
  if (const Sequence* s = sequence()) return s->kind == SequenceKind::kGenerator || !s->items.empty();
  if (const Mapping* m = mapping()) return !m->entries.empty();
  return true;
}

int Value::depth() const {
  if (const Sequence* s = sequence()) return s->depth;
  if (const Mapping* m = mapping()) return m->depth;
  if (const BoundPtr* b = get<BoundPtr>()) return (*b)->self.depth() + 1;
  return 0;
}

std::string_view Value::type_name() const {
  if (undefined()) return "Undefined";
  if (none()) return "NoneType";
  if (is<bool>()) return "bool";
  if (is<std::int64_t>()) return "int";
  if (is<double>()) return "float";
  if (text() != nullptr) return "str";
  if (const Sequence* s = sequence()) {
    if (s->kind == SequenceKind::kTuple) return "tuple";
    return s->kind == SequenceKind::kList ? "list" : "generator";
  }
  if (mapping() != nullptr) return "dict";
  if (is<Namespace*>()) return "Namespace";
  if (is<const Macro*>()) return "Macro";
  if (is<const LoopState*>()) return "LoopContext";
  return "builtin_function_or_method";
}

Expected<Value> make_sequence(std::vector<Value> items, SequenceKind kind) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= Value::kMaxDepth) return limit_error("lists are nested too deeply");
  return Value(std::make_shared<const Sequence>(Sequence{kind, std::move(items), depth + 1}));
}

Expected<Value> make_mapping(Mapping mapping) {
  int depth = 0;
  for (const auto& [key, value] : mapping.entries) depth = std::max({depth, key.depth(), value.depth()});
  if (depth >= Value::kMaxDepth) return limit_error("dicts are nested too deeply");
  mapping.depth = depth + 1;
  return Value(std::make_shared<const Mapping>(std::move(mapping)));
}

namespace {

bool is_plain_word(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

}  // namespace

Expected<Value> from_json(const nlohmann::ordered_json& json, bool content, int depth) {
  if (depth > Value::kMaxDepth) return limit_error("variables are nested too deeply");
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return type_error("an integer variable is above 2^63-1");
  }
  if (json.is_number_integer()) return Value(json.get<std::int64_t>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) {
    const std::string& text = json.get_ref<const std::string&>();
    return content ? Value(MarkedText::content(text)) : Value(text);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) {
      DLLM_TRY(Value value, from_json(item, content, depth + 1));
      items.push_back(std::move(value));
    }
    return make_sequence(std::move(items));
  }
  if (json.is_object()) {
    Mapping mapping;
    for (const auto& [key, item] : json.items()) {
      const bool word = key == "role" && item.is_string() && is_plain_word(item.get_ref<const std::string&>());
      DLLM_TRY(Value value, from_json(item, content && !word, depth + 1));
      mapping.entries.emplace_back(content ? Value(MarkedText::content(key)) : Value(key), std::move(value));
    }
    return make_mapping(std::move(mapping));
  }
  return Value(None{});
}

}  // namespace dllm::jinja
