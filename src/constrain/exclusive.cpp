#include "constrain/exclusive.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/json_number.h"
#include "constrain/schema_node.h"
#include "constrain/value_set.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

/// In steps along lists of hashes, a nanosecond or two each: 20 ms at most.
constexpr std::int64_t kMostWork = 10'000'000;
constexpr std::int64_t kPropertyWork = 16, kPairWork = 32;
constexpr int kDeepestPair = 16;

const Json& target(const Json& schema, const Json& root) {
  const Json* place = &schema;
  // References to themselves end here, too.
  for (int i = 0; i < 64 && place->is_object() && place->contains("$ref"); ++i) {
    const auto found = SchemaNode{*place, ""}.resolve(root);
    if (!found) break;
    place = &found->json;
  }
  return *place;
}

/// A bit per type as JSON distinguishes them: every integer is a number.
unsigned kind_bit(std::string_view type) {
  static constexpr std::string_view kKinds[] = {"number", "string", "boolean", "null", "array", "object"};
  return 1U << (std::ranges::find(kKinds, type == "integer" ? "number" : type) - std::begin(kKinds));
}

/// Which types fit; nullopt: any.
std::optional<unsigned> kinds_of(const Json& schema) {
  unsigned kinds = 0;
  if (schema.contains("const")) return kind_bit(schema["const"].type_name());
  if (schema.contains("enum")) {
    for (const Json& value : schema["enum"]) kinds |= kind_bit(value.type_name());
    return kinds;
  }
  const auto types = SchemaNode{schema, ""}.types();
  if (!types || types->empty()) return std::nullopt;
  for (const std::string& type : *types) kinds |= kind_bit(type);
  return kinds;
}

bool only_of_kind(const Json& schema, std::string_view wanted) {
  return schema.is_object() && kinds_of(schema) == kind_bit(wanted);
}

}  // namespace

/// What is compared of a schema, found once: a schema is one of up to 255 pairs.
struct SchemaFacts {
  struct Value {
    std::uint64_t hash;
    const Json* json;
  };
  struct Property {
    const std::string* name;
    const Json* schema;
  };

  bool object = false;  ///< a schema of keywords, not true or false
  std::optional<unsigned> kinds{};
  /// Whether values of other types do not fit: without `type`, they do unless a keyword applies to them.
  bool names_kinds = false;
  std::optional<std::vector<Value>> values{};  ///< of const or enum, by hash
  std::vector<Property> required{};            ///< those with a schema, by name; only of objects

  explicit SchemaFacts(const Json& schema);
};

SchemaFacts::SchemaFacts(const Json& schema) : object(schema.is_object()) {
  if (!object) return;
  kinds = kinds_of(schema);
  names_kinds = schema.contains("type") || schema.contains("const") || schema.contains("enum");
  const bool one = schema.contains("const");
  if (one || schema.contains("enum")) {
    values.emplace();
    if (one) values->push_back({value_hash(schema["const"]), &schema["const"]});
    if (!one)
      for (const Json& value : schema["enum"]) values->push_back({value_hash(value), &value});
    std::ranges::sort(*values, {}, &Value::hash);
  }
  if (kinds != kind_bit("object") || !schema.contains("properties") || !schema.contains("required")) return;
  std::set<std::string_view> names;
  for (const Json& name : schema["required"])
    if (name.is_string()) names.insert(name.get_ref<const std::string&>());
  for (const auto& member : schema["properties"].get_ref<const Json::object_t&>())
    if (names.contains(member.first)) required.push_back({&member.first, &member.second});
  std::ranges::sort(required, {}, [](const Property& property) -> const std::string& { return *property.name; });
}

Exclusion::Exclusion(const Json& root) : root_(root) {}
Exclusion::~Exclusion() = default;

const SchemaFacts& Exclusion::facts(const Json& schema) {
  auto& known = facts_[&schema];
  if (known == nullptr) known = std::make_unique<SchemaFacts>(target(schema, root_));
  return *known;
}

bool Exclusion::disjoint_values(const SchemaFacts& a, const SchemaFacts& b) {
  auto i = a.values->begin(), j = b.values->begin();
  while (i != a.values->end() && j != b.values->end()) {
    if (++work_ > kMostWork) return false;
    if (i->hash != j->hash) {
      ++(i->hash < j->hash ? i : j);
      continue;
    }
    // Different integers that are the same as a double have the same hash, too.
    for (auto same = j; same != b.values->end() && same->hash == i->hash; ++same)
      if ((work_ += kPairWork) > kMostWork || equal_values(*i->json, *same->json)) return false;
    ++i;
  }
  return true;
}

bool Exclusion::excluded_by_property(const SchemaFacts& a, const SchemaFacts& b) {
  auto i = a.required.begin(), j = b.required.begin();
  while (i != a.required.end() && j != b.required.end()) {
    if ((work_ += kPropertyWork) > kMostWork) return false;
    if (const auto order = *i->name <=> *j->name; order != 0) {
      ++(order < 0 ? i : j);
      continue;
    }
    ++depth_;
    const bool excluded = holds(*i->schema, *j->schema);
    --depth_;
    if (excluded) return true;
    ++i, ++j;
  }
  return false;
}

bool Exclusion::holds(const Json& first, const Json& second) {
  if ((work_ += kPairWork) > kMostWork || depth_ >= kDeepestPair) return false;
  const SchemaFacts &a = facts(first), &b = facts(second);
  if (!a.object || !b.object) return false;
  if (a.kinds && b.kinds && a.names_kinds && b.names_kinds && (*a.kinds & *b.kinds) == 0) return true;
  if (a.values && b.values) return disjoint_values(a, b);
  return excluded_by_property(a, b);
}

namespace {

/// The integers between bounds, if a schema says nothing else about them and they are few.
std::optional<std::vector<Json>> few_integers(const Json& schema) {
  constexpr std::int64_t kMostIntegers = 1000;
  if (schema.contains("multipleOf")) return std::nullopt;
  std::optional<std::int64_t> low, high;
  for (const char* key : {"minimum", "exclusiveMinimum"}) {
    if (!schema.contains(key)) continue;
    const auto least = schema[key].is_number() ? least_integer(schema[key], key[0] == 'e') : std::nullopt;
    if (!least) return std::nullopt;
    low = std::max(low.value_or(*least), *least);
  }
  for (const char* key : {"maximum", "exclusiveMaximum"}) {
    if (!schema.contains(key)) continue;
    const auto greatest = schema[key].is_number() ? greatest_integer(schema[key], key[0] == 'e') : std::nullopt;
    if (!greatest) return std::nullopt;
    high = std::min(high.value_or(*greatest), *greatest);
  }
  if (!low || !high || *low > *high) return std::nullopt;
  // Unsigned, because the difference may have 64 bits, and the number after the highest may be none.
  const std::uint64_t more = static_cast<std::uint64_t>(*high) - static_cast<std::uint64_t>(*low);
  if (more >= kMostIntegers) return std::nullopt;
  std::vector<Json> values;
  for (std::uint64_t i = 0; i <= more; ++i) values.emplace_back(*low + static_cast<std::int64_t>(i));
  return values;
}

}  // namespace

std::optional<std::vector<Json>> few_values(const Json& schema, const Json& root) {
  const Json& place = target(schema, root);
  if (!place.is_object()) return std::nullopt;
  for (const char* other : {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas"})
    if (place.contains(other)) return std::nullopt;
  std::vector<Json> values;
  if (place.contains("const")) {
    values.push_back(place["const"]);
  } else if (place.contains("enum") && place["enum"].is_array()) {
    values.assign(place["enum"].begin(), place["enum"].end());
  } else {
    const auto types = SchemaNode{place, ""}.types();
    if (!types || types->empty()) return std::nullopt;
    for (const std::string& type : *types) {
      if (type == "integer") {
        const auto integers = few_integers(place);
        if (!integers) return std::nullopt;
        values.insert(values.end(), integers->begin(), integers->end());
        continue;
      }
      if (type != "boolean" && type != "null") return std::nullopt;
      if (type == "null") values.emplace_back(nullptr);
      if (type == "boolean") values.insert(values.end(), {Json(true), Json(false)});
    }
  }
  std::vector<Json> different;
  ValueSet seen;
  for (const Json& value : values) {
    const auto fits = SchemaNode{place, ""}.type_admits(value);
    if (fits && *fits && seen.insert(value)) different.push_back(value);
  }
  return different;
}

bool strings_only(const Json& schema, const Json& root) { return only_of_kind(target(schema, root), "string"); }

}  // namespace dllm::constrain
