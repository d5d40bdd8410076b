#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/try.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {
namespace {

// Python compares items by identity first.
bool identical(const Value& a, const Value& b) {
  if (a.sequence() != nullptr) return a.sequence() == b.sequence();
  return a.mapping() != nullptr && a.mapping() == b.mapping();
}

Expected<bool> equal_sequences(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (a.kind == SequenceKind::kGenerator || a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    DLLM_TRY(const bool same, equal(runtime, a.items[i], b.items[i]));
    if (!same) return false;
  }
  return true;
}

Expected<bool> equal_mappings(Runtime& runtime, const Mapping& a, const Mapping& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    DLLM_TRY(const Value* other, find_entry(runtime, b, key));
    if (other == nullptr) return false;
    DLLM_TRY(const bool same, equal(runtime, value, *other));
    if (!same) return false;
  }
  return true;
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

Expected<bool> equal(Runtime& runtime, const Value& a, const Value& b) {
  DLLM_CHECK_OK(runtime.step());
  if (a.number() && b.number()) {
    if (a.is<double>() || b.is<double>()) return a.as_double() == b.as_double();
    return a.as_integer() == b.as_integer();
  }
  if (a.undefined() || a.none()) return a.undefined() == b.undefined() && a.none() == b.none();
  if (a.text() != nullptr && b.text() != nullptr) {
    DLLM_CHECK_OK(runtime.scan(a));
    return *a.text() == *b.text();
  }
  if (identical(a, b)) return true;
  if (a.sequence() != nullptr && b.sequence() != nullptr) return equal_sequences(runtime, *a.sequence(), *b.sequence());
  if (a.mapping() != nullptr && b.mapping() != nullptr) return equal_mappings(runtime, *a.mapping(), *b.mapping());
  if (a.is<Namespace*>() && b.is<Namespace*>()) return *a.get<Namespace*>() == *b.get<Namespace*>();
  if (a.is<const Macro*>() && b.is<const Macro*>()) return *a.get<const Macro*>() == *b.get<const Macro*>();
  return false;
}

Expected<int> compare(Runtime& runtime, const Value& a, const Value& b) {
  DLLM_CHECK_OK(runtime.step());
  DLLM_CHECK_OK(require_defined(a));
  DLLM_CHECK_OK(require_defined(b));
  if (a.number() && b.number()) return compare_numbers(a, b);
  if (a.text() != nullptr && b.text() != nullptr) {
    DLLM_CHECK_OK(runtime.scan(a));
    const int order = a.text()->compare(*b.text());  // bytes of UTF-8 order as code points do
    return order < 0 ? -1 : static_cast<int>(order > 0);
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x == nullptr || y == nullptr || x->kind != y->kind || x->kind == SequenceKind::kGenerator) {
    return type_error(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
  }
  for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    DLLM_TRY(const bool same, equal(runtime, x->items[i], y->items[i]));
    if (!same) return compare(runtime, x->items[i], y->items[i]);
  }
  if (x->items.size() == y->items.size()) return 0;
  return x->items.size() < y->items.size() ? -1 : 1;
}

// Our own merge sort: std::stable_sort cannot stop at an error, and NaN violates the order that it requires.
Expected<std::vector<std::size_t>> sort_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(keys.size()), merged(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t width = 1; width < order.size(); width *= 2) {
    for (std::size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, order.size()), end = std::min(begin + 2 * width, order.size());
      std::size_t left = begin, right = middle;
      for (std::size_t to = begin; to < end; ++to) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          DLLM_TRY(const int sign, compare(runtime, keys[order[right]], keys[order[left]]));
          take_right = reverse ? sign > 0 : sign < 0;
        }
        merged[to] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

Expected<std::size_t> index_of(Runtime& runtime, const std::vector<Value>& items, const Value& value) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    DLLM_TRY(const bool same, equal(runtime, items[i], value));
    if (same) return i;
  }
  return items.size();
}

namespace {

// The index of a key; the number of entries if there is none.
Expected<std::size_t> entry_index(Runtime& runtime, const Mapping& mapping, const Value& key) {
  const std::string* text = key.text();
  std::size_t i = 0;
  for (; i < mapping.entries.size(); ++i) {
    const Value& known = mapping.entries[i].first;
    if (text != nullptr) {
      if (known.text() != nullptr && *known.text() == *text) break;
      continue;
    }
    DLLM_TRY(const bool same, equal(runtime, known, key));
    if (same) break;
  }
  DLLM_CHECK_OK(runtime.step(static_cast<std::int64_t>(i / 4)));  // looking at a text costs a fraction of a step
  return i;
}

}  // namespace

Expected<const Value*> find_entry(Runtime& runtime, const Mapping& mapping, const Value& key) {
  DLLM_TRY(const std::size_t at, entry_index(runtime, mapping, key));
  return at < mapping.entries.size() ? &mapping.entries[at].second : nullptr;
}

Expected<void> set_entry(Runtime& runtime, Mapping& mapping, Value key, Value value) {
  DLLM_TRY(const std::size_t at, entry_index(runtime, mapping, key));
  if (at < mapping.entries.size()) {
    mapping.entries[at].second = std::move(value);
  } else {
    mapping.entries.emplace_back(std::move(key), std::move(value));
  }
  return {};
}

}  // namespace dllm::jinja
