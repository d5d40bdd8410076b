#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "text/jinja/filters.h"
#include "text/jinja/named.h"
#include "text/jinja/strings.h"

namespace dllm::jinja {
namespace {

Expected<Value> length(const FilterCall& call) {
  const Value& input = call.input;
  std::size_t size = 0;
  if (const std::string* text = input.text()) {
    size = char_count(*text);
  } else if (const Sequence* sequence = input.sequence(); sequence && sequence->kind != SequenceKind::kGenerator) {
    size = sequence->items.size();
  } else if (const Mapping* mapping = input.mapping()) {
    size = mapping->entries.size();
  } else if (!input.undefined()) {
    return type_error(fmt::format("object of type '{}' has no len()", input.type_name()));
  }
  return Value(static_cast<std::int64_t>(size));
}

Expected<Value> first(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  return items->items.empty() ? undefined_value("No first item, sequence was empty.") : items->items.front();
}

Expected<Value> last(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  return items->items.empty() ? undefined_value("No last item, sequence was empty.") : items->items.back();
}

// Lists of `size` items each, the last one padded with `fill_with`.
Expected<Value> batch(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  DLLM_TRY(const std::int64_t size, call.integer_or(0, "linecount", 0));
  const Value* fill = call.find(1, "fill_with");
  if (size < 1 || size > call.runtime.limits().range) return type_error("batch needs a positive number");
  std::vector<Value> out;
  for (std::size_t at = 0; at < items->items.size(); at += static_cast<std::size_t>(size)) {
    const std::size_t end = std::min(items->items.size(), at + static_cast<std::size_t>(size));
    std::vector<Value> line(items->items.begin() + static_cast<std::ptrdiff_t>(at),
                            items->items.begin() + static_cast<std::ptrdiff_t>(end));
    if (fill != nullptr && !fill->none()) line.resize(static_cast<std::size_t>(size), *fill);
    DLLM_CHECK_OK(call.runtime.step(static_cast<std::int64_t>(line.size())));
    DLLM_TRY(Value made, make_sequence(std::move(line)));
    out.push_back(std::move(made));
  }
  return make_sequence(std::move(out), SequenceKind::kGenerator);
}

Expected<Value> to_list(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  return make_sequence(items->items);
}

Expected<Value> reverse(const FilterCall& call) {
  if (const MarkedText* text = call.input.marked()) return call.runtime.text(reversed(*text), call.input.safe());
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  return make_sequence({items->items.rbegin(), items->items.rend()}, SequenceKind::kGenerator);
}

Expected<Value> join(const FilterCall& call) {
  const Value* given = call.find(0, "d");
  DLLM_TRY(const MarkedText separator, call.runtime.str(given != nullptr ? *given : Value(std::string())));
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const Value* attribute = call.find(1, "attribute");
  MarkedText out;
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    Value item = items->items[i];
    if (attribute != nullptr && !attribute->none()) {
      DLLM_TRY(item, attribute_path(call.runtime, item, *attribute));
    }
    DLLM_TRY(const MarkedText text, call.runtime.str(item));
    DLLM_CHECK_OK(call.runtime.allocate(separator.bytes.size()));
    if (i > 0) out.append(separator);
    out.append(text);
    if (out.bytes.size() > call.runtime.limits().output) return limit_error("a joined text grows too long");
  }
  return Value(std::move(out));
}

Expected<Value> pairs(const FilterCall& call) {
  if (call.input.undefined()) return make_sequence({}, SequenceKind::kGenerator);
  const Mapping* mapping = call.input.mapping();
  if (mapping == nullptr) return type_error("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : mapping->entries) {
    DLLM_CHECK_OK(call.runtime.step());
    DLLM_TRY(Value pair, make_sequence({key, value}, SequenceKind::kTuple));
    items.push_back(std::move(pair));
  }
  return make_sequence(std::move(items), SequenceKind::kGenerator);
}

// What sort(), min() and others compare: texts ignoring case unless requested otherwise.
Expected<std::vector<Value>> sort_keys(const FilterCall& call, const std::vector<Value>& items, const Value* attribute,
                                       bool case_sensitive) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    DLLM_CHECK_OK(call.runtime.step());
    Value key = item;
    if (attribute != nullptr && !attribute->none()) {
      DLLM_TRY(key, attribute_path(call.runtime, item, *attribute));
    }
    if (!case_sensitive && key.text() != nullptr) {
      DLLM_TRY(key, call.runtime.text(lower(*key.marked())));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

Expected<Value> sorted(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const bool backwards = call.flag_or(0, "reverse", false), exact = call.flag_or(1, "case_sensitive", false);
  DLLM_TRY(const auto keys, sort_keys(call, items->items, call.find(2, "attribute"), exact));
  DLLM_TRY(const auto order, sort_order(call.runtime, keys, backwards));
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(items->items[i]);
  return make_sequence(std::move(out));
}

Expected<Value> dictsort(const FilterCall& call) {
  DLLM_TRY(const Value listed, pairs(call));
  const std::vector<Value>& items = listed.sequence()->items;
  DLLM_TRY(const MarkedText named, call.text_or(1, "by", "key"));
  const std::string& by = named.bytes;
  if (by != "key" && by != "value") return type_error("You can only sort by either \"key\" or \"value\"");
  const Value position(std::int64_t{by == "value"});
  DLLM_TRY(const auto keys, sort_keys(call, items, &position, call.flag_or(0, "case_sensitive", false)));
  DLLM_TRY(const auto order, sort_order(call.runtime, keys, call.flag_or(2, "reverse", false)));
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return make_sequence(std::move(out));
}

Expected<Value> unique(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const bool exact = call.flag_or(0, "case_sensitive", false);
  DLLM_TRY(const auto keys, sort_keys(call, items->items, call.find(1, "attribute"), exact));
  std::vector<Value> out, seen;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].mapping() != nullptr || keys[i].type_name() == "list")
      return type_error(fmt::format("unhashable type: '{}'", keys[i].type_name()));
    DLLM_TRY(const std::size_t at, index_of(call.runtime, seen, keys[i]));
    if (at < seen.size()) continue;
    seen.push_back(keys[i]);
    out.push_back(items->items[i]);
  }
  return make_sequence(std::move(out), SequenceKind::kGenerator);
}

Expected<Value> extreme(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const bool exact = call.flag_or(0, "case_sensitive", false);
  DLLM_TRY(const auto keys, sort_keys(call, items->items, call.find(1, "attribute"), exact));
  if (keys.empty()) return undefined_value("No aggregated item, sequence was empty.");
  std::size_t best = 0;
  for (std::size_t i = 1; i < keys.size(); ++i) {
    DLLM_TRY(const int sign, compare(call.runtime, keys[i], keys[best]));
    if (call.name == "min" ? sign < 0 : sign > 0) best = i;
  }
  return items->items[best];
}

Expected<Value> sum(const FilterCall& call) {
  DLLM_TRY(const SequencePtr items, call.runtime.iterate(call.input));
  const Value* attribute = call.find(0, "attribute");
  const Value* start = call.find(1, "start");
  Value total = start != nullptr ? *start : Value(std::int64_t{0});
  for (const Value& item : items->items) {
    Value term = item;
    if (attribute != nullptr && !attribute->none()) {
      DLLM_TRY(term, attribute_path(call.runtime, item, *attribute));
    }
    DLLM_TRY(total, binary(call.runtime, "+", total, term));
  }
  return total;
}

Expected<Value> attribute(const FilterCall& call) {
  const Value* key = call.find(0, "name");
  if (key == nullptr || key->text() == nullptr) return type_error("attr needs a name");
  const Mapping* mapping = call.input.mapping();
  // attr() searches attributes only, and the keys of a dict are items.
  if (mapping != nullptr && !is_method(call.input, *key->text())) return undefined_value("no such attribute");
  return get_attribute(call.runtime, call.input, *key->text());
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static constexpr Named<Filter> kFilters[] = {
      {"length", length}, {"count", length},      {"first", first},    {"last", last},
      {"list", to_list},  {"reverse", reverse},   {"join", join},      {"items", pairs},
      {"sort", sorted},   {"dictsort", dictsort}, {"unique", unique},  {"min", extreme},
      {"max", extreme},   {"sum", sum},           {"attr", attribute}, {"batch", batch},
  };
  return find_named(kFilters, name);
}

}  // namespace dllm::jinja
