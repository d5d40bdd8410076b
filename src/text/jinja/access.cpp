#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/try.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"

namespace dllm::jinja {
namespace {

Value missing(const Value& object, std::string_view name) {
  return undefined_value(fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

Value loop_attribute(const LoopState& loop, const Value& object, const std::string& name) {
  const std::vector<Value>& items = loop.items->items;
  const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(items.size() - loop.index);
  if (name == "revindex0") return number(items.size() - loop.index - 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == items.size());
  if (name == "length") return number(items.size());
  if (name == "depth" || name == "depth0") return number(name == "depth" ? 1 : 0);  // counts recursive loops only
  if (name == "previtem") return loop.index > 0 ? items[loop.index - 1] : undefined_value("there is no previous item");
  if (name == "nextitem") {
    return loop.index + 1 < items.size() ? items[loop.index + 1] : undefined_value("there is no next item");
  }
  return missing(object, name);
}

// Python's index: negative ones count from the end.
std::optional<std::size_t> resolve_index(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

}  // namespace

Expected<Value> get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  DLLM_CHECK_OK(require_defined(object));
  if (Namespace* const* ns = object.get<Namespace*>()) {
    const Value* found = (*ns)->attributes.find_text(name);
    return found != nullptr ? *found : missing(object, name);
  }
  if (is_method(object, name)) return Value(std::make_shared<const Bound>(Bound{object, name}));
  if (const LoopState* const* loop = object.get<const LoopState*>()) return loop_attribute(**loop, object, name);
  if (const Mapping* mapping = object.mapping()) {
    DLLM_CHECK_OK(runtime.step(static_cast<std::int64_t>(mapping->entries.size() / 16)));
    if (const Value* found = mapping->find_text(name)) return *found;
  }
  if (const Macro* const* macro = object.get<const Macro*>(); macro != nullptr && name == "name") {
    return Value((*macro)->definition->text);
  }
  return missing(object, name);
}

Expected<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  DLLM_CHECK_OK(require_defined(object));
  if (const Mapping* mapping = object.mapping()) {
    DLLM_TRY(const Value* found, find_entry(runtime, *mapping, key));
    if (found != nullptr) return *found;
  }
  if (key.integer_like()) {
    if (const Sequence* sequence = object.sequence(); sequence && sequence->kind != SequenceKind::kGenerator) {
      const auto index = resolve_index(key.as_integer(), sequence->items.size());
      if (index) return sequence->items[*index];
    } else if (const std::string* text = object.text()) {
      DLLM_CHECK_OK(runtime.scan(object, 2));
      const auto index = resolve_index(key.as_integer(), char_count(*text));
      if (index) return runtime.text(object.marked()->part(char_at(*text, *index)), object.safe());
    }
    return missing(object, std::to_string(key.as_integer()));
  }
  // As in Jinja, a text key that is not an item is then searched among the attributes.
  if (const std::string* name = key.text()) return get_attribute(runtime, object, *name);
  return undefined_value(fmt::format("'{} object' has no such element", object.type_name()));
}

namespace {

struct Slice {
  std::int64_t start, stop, step;
};

Expected<std::int64_t> bound_or(const Value& value, std::int64_t otherwise) {
  if (value.none()) return otherwise;
  if (!value.integer_like()) return type_error("slice indices must be integers or None");
  return value.as_integer();
}

// Python's slice.indices().
Expected<Slice> resolve_slice(const Value& start, const Value& stop, const Value& step, std::int64_t size) {
  Slice slice{};
  DLLM_TRY(slice.step, bound_or(step, 1));
  if (slice.step == 0) return type_error("slice step cannot be zero");
  const bool forward = slice.step > 0;
  const std::int64_t lowest = forward ? 0 : -1, highest = forward ? size : size - 1;
  const auto clip = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, lowest, highest); };
  DLLM_TRY(const std::int64_t first, bound_or(start, forward ? 0 : INT64_MAX));
  slice.start = clip(first);
  DLLM_TRY(slice.stop, bound_or(stop, INT64_MAX));
  slice.stop = stop.none() ? (forward ? highest : lowest) : clip(slice.stop);
  return slice;
}

template <class Visit>
void each_index(const Slice& slice, Visit visit) {
  std::int64_t at = slice.start;
  while (slice.step > 0 ? at < slice.stop : at > slice.stop) {
    visit(static_cast<std::size_t>(at));
    if (__builtin_add_overflow(at, slice.step, &at)) return;
  }
}

}  // namespace

Expected<Value> get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                          const Value& step) {
  DLLM_CHECK_OK(require_defined(object));
  DLLM_CHECK_OK(runtime.scan(object, 2));
  if (const std::string* text = object.text()) {
    const auto all = chars(*text);
    DLLM_TRY(const Slice slice, resolve_slice(start, stop, step, static_cast<std::int64_t>(all.size())));
    MarkedText out;
    each_index(slice, [&](std::size_t i) {
      out.append_part(*object.marked(), static_cast<std::size_t>(all[i].data() - text->data()), all[i].size());
    });
    return runtime.text(std::move(out), object.safe());
  }
  const Sequence* sequence = object.sequence();
  if (sequence == nullptr || sequence->kind == SequenceKind::kGenerator) {
    return type_error(fmt::format("'{}' object cannot be sliced", object.type_name()));
  }
  DLLM_TRY(const Slice slice, resolve_slice(start, stop, step, static_cast<std::int64_t>(sequence->items.size())));
  std::vector<Value> items;
  each_index(slice, [&](std::size_t i) { items.push_back(sequence->items[i]); });
  DLLM_CHECK_OK(runtime.step(static_cast<std::int64_t>(items.size())));
  return make_sequence(std::move(items), sequence->kind);
}

}  // namespace dllm::jinja
