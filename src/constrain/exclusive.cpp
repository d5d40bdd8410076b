#include "constrain/exclusive.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "constrain/schema_node.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

/// Unordered objects compare by their members.
using Plain = nlohmann::json;

constexpr int kMostSchemaPairs = 80'000, kDeepestPair = 16;

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

std::optional<std::vector<Plain>> values_of(const Json& schema) {
  if (schema.contains("const")) return std::vector<Plain>{schema["const"]};
  if (!schema.contains("enum")) return std::nullopt;
  std::vector<Plain> values;
  for (const Json& one : schema["enum"]) values.emplace_back(one);
  return values;
}

/// Types as JSON distinguishes them: every integer is a number.
std::optional<std::vector<std::string>> kinds_of(const Json& schema) {
  std::vector<std::string> kinds;
  if (const auto values = values_of(schema)) {
    for (const Plain& value : *values) kinds.emplace_back(value.type_name());
    return kinds;
  }
  const auto types = SchemaNode{schema, ""}.types();
  if (!types || types->empty()) return std::nullopt;
  for (const std::string& type : *types) kinds.push_back(type == "integer" ? "number" : type);
  return kinds;
}

template <class T>
bool disjoint(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::none_of(a, [&](const T& one) { return std::ranges::count(b, one) > 0; });
}

bool requires_property(const Json& schema, const std::string& name) {
  return schema.contains("required") && std::ranges::count(schema["required"], Json(name)) > 0;
}

/// Without `type`, values of all types fit to which no keyword applies.
bool names_kinds(const Json& schema) {
  return schema.contains("type") || schema.contains("const") || schema.contains("enum");
}

/// Whether the answers that are produced for a schema are of one type.
bool only_of_kind(const Json& schema, std::string_view wanted) {
  if (!schema.is_object()) return false;
  const auto kinds = kinds_of(schema);
  return kinds && std::ranges::all_of(*kinds, [&](const std::string& kind) { return kind == wanted; });
}

}  // namespace

bool Exclusion::holds(const Json& first, const Json& second) {
  if (++pairs_ > kMostSchemaPairs || depth_ >= kDeepestPair) return false;
  const Json &a = target(first, root_), &b = target(second, root_);
  if (!a.is_object() || !b.is_object()) return false;
  const auto kinds_a = kinds_of(a), kinds_b = kinds_of(b);
  if (kinds_a && kinds_b && names_kinds(a) && names_kinds(b) && disjoint(*kinds_a, *kinds_b)) return true;
  const auto values_a = values_of(a), values_b = values_of(b);
  if (values_a && values_b) return disjoint(*values_a, *values_b);
  if (!only_of_kind(a, "object") || !only_of_kind(b, "object") || !a.contains("properties") ||
      !b.contains("properties"))
    return false;
  for (const auto& [name, schema] : a["properties"].items()) {
    if (!b["properties"].contains(name) || !requires_property(a, name) || !requires_property(b, name)) continue;
    ++depth_;
    const bool excluded = holds(schema, b["properties"][name]);
    --depth_;
    if (excluded) return true;
  }
  return false;
}

std::optional<std::vector<Json>> few_values(const Json& schema, const Json& root) {
  const Json& place = target(schema, root);
  if (!place.is_object() || place.contains("$ref")) return std::nullopt;
  std::vector<Json> values;
  if (place.contains("const")) {
    values.push_back(place["const"]);
  } else if (place.contains("enum") && place["enum"].is_array()) {
    values.assign(place["enum"].begin(), place["enum"].end());
  } else {
    const auto types = SchemaNode{place, ""}.types();
    if (!types || types->empty()) return std::nullopt;
    for (const std::string& type : *types) {
      if (type != "boolean" && type != "null") return std::nullopt;
      if (type == "null") values.emplace_back(nullptr);
      if (type == "boolean") values.insert(values.end(), {Json(true), Json(false)});
    }
  }
  std::vector<Json> different;
  std::vector<Plain> seen;
  for (const Json& value : values) {
    const auto fits = SchemaNode{place, ""}.type_admits(value);
    if (!fits || !*fits || std::ranges::count(seen, Plain(value)) > 0) continue;
    seen.emplace_back(value);
    different.push_back(value);
  }
  return different;
}

bool strings_only(const Json& schema, const Json& root) { return only_of_kind(target(schema, root), "string"); }

}  // namespace dllm::constrain
