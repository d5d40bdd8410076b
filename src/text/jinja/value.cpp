#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/try.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {

Error type_error(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "", ""}; }
Error limit_error(std::string what) { return {ErrorCode::kResource, std::move(what), "", ""}; }

const Value* Mapping::find(const Value& key) const {
  for (const auto& [known, value] : entries) {
    if (equal(known, key)) return &value;
  }
  return nullptr;
}

const Value* Mapping::find_text(std::string_view key) const {
  for (const auto& [known, value] : entries) {
    if (const std::string* text = known.text(); text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

void Mapping::set(Value key, Value value) {
  for (auto& [known, old] : entries) {
    if (!equal(known, key)) continue;
    old = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
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

bool Value::has_content() const {
  if (const MarkedText* t = marked()) return t->has_content();
  if (const Sequence* s = sequence()) return s->content;
  if (const Mapping* m = mapping()) return m->content;
  if (const BoundPtr* b = get<BoundPtr>()) return (*b)->self.has_content();
  return is<Namespace*>() || is<const LoopState*>();
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
  const bool content = std::ranges::any_of(items, &Value::has_content);
  return Value(std::make_shared<const Sequence>(Sequence{kind, std::move(items), depth + 1, content}));
}

Expected<Value> make_mapping(Mapping mapping) {
  int depth = 0;
  for (const auto& [key, value] : mapping.entries) depth = std::max({depth, key.depth(), value.depth()});
  if (depth >= Value::kMaxDepth) return limit_error("dicts are nested too deeply");
  mapping.depth = depth + 1;
  mapping.content = std::ranges::any_of(
      mapping.entries, [](const auto& entry) { return entry.first.has_content() || entry.second.has_content(); });
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

namespace {

bool equal_sequences(const Sequence& a, const Sequence& b) {
  if (a.kind == SequenceKind::kGenerator || b.kind == SequenceKind::kGenerator) return &a == &b;
  return a.kind == b.kind && std::ranges::equal(a.items, b.items, equal);
}

bool equal_mappings(const Mapping& a, const Mapping& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

// Exact for integers; doubles as soon as one side is a double.
int compare_numbers(const Value& a, const Value& b) {
  if (a.integer_like() && b.integer_like()) {
    const std::int64_t x = a.as_integer(), y = b.as_integer();
    return x < y ? -1 : static_cast<int>(x > y);
  }
  const double x = a.as_double(), y = b.as_double();
  return x < y ? -1 : static_cast<int>(x > y);
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    if (a.is<double>() || b.is<double>()) return a.as_double() == b.as_double();
    return a.as_integer() == b.as_integer();
  }
  if (a.undefined() || a.none()) return a.undefined() == b.undefined() && a.none() == b.none();
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (a.sequence() != nullptr && b.sequence() != nullptr) return equal_sequences(*a.sequence(), *b.sequence());
  if (a.mapping() != nullptr && b.mapping() != nullptr) return equal_mappings(*a.mapping(), *b.mapping());
  if (a.is<Namespace*>() && b.is<Namespace*>()) return *a.get<Namespace*>() == *b.get<Namespace*>();
  if (a.is<const Macro*>() && b.is<const Macro*>()) return *a.get<const Macro*>() == *b.get<const Macro*>();
  return false;
}

Expected<int> compare(const Value& a, const Value& b) {
  if (a.undefined()) return type_error(*a.get<Undefined>()->hint);
  if (b.undefined()) return type_error(*b.get<Undefined>()->hint);
  if (a.number() && b.number()) return compare_numbers(a, b);
  if (a.text() != nullptr && b.text() != nullptr) {
    const int order = a.text()->compare(*b.text());  // bytes of UTF-8 order as code points do
    return order < 0 ? -1 : static_cast<int>(order > 0);
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x == nullptr || y == nullptr || x->kind != y->kind || x->kind == SequenceKind::kGenerator) {
    return type_error(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
  }
  for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (!equal(x->items[i], y->items[i])) return compare(x->items[i], y->items[i]);
  }
  if (x->items.size() == y->items.size()) return 0;
  return x->items.size() < y->items.size() ? -1 : 1;
}

// Our own merge sort: std::stable_sort cannot stop at an error, and NaN violates the order that it requires.
Expected<std::vector<std::size_t>> sort_order(const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(keys.size()), merged(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t width = 1; width < order.size(); width *= 2) {
    for (std::size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, order.size()), end = std::min(begin + 2 * width, order.size());
      std::size_t left = begin, right = middle;
      for (std::size_t to = begin; to < end; ++to) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          DLLM_TRY(const int sign, compare(keys[order[right]], keys[order[left]]));
          take_right = reverse ? sign > 0 : sign < 0;
        }
        merged[to] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace dllm::jinja
