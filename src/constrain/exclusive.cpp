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

const Json& target(const Json& schema, const Json& root) {
  const Json* place = &schema;
  // A cycle of references has been refused before.
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
  if (!types) return std::nullopt;
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

bool objects_only(const Json& schema) {
  const auto kinds = kinds_of(schema);
  return kinds && std::ranges::all_of(*kinds, [](const std::string& kind) { return kind == "object"; });
}

}  // namespace

bool exclude_each_other(const Json& first, const Json& second, const Json& root) {
  const Json &a = target(first, root), &b = target(second, root);
  if (!a.is_object() || !b.is_object()) return false;
  const auto kinds_a = kinds_of(a), kinds_b = kinds_of(b);
  if (kinds_a && kinds_b && disjoint(*kinds_a, *kinds_b)) return true;
  const auto values_a = values_of(a), values_b = values_of(b);
  if (values_a && values_b) return disjoint(*values_a, *values_b);
  if (!objects_only(a) || !objects_only(b) || !a.contains("properties") || !b.contains("properties")) return false;
  for (const auto& [name, schema] : a["properties"].items())
    if (b["properties"].contains(name) && requires_property(a, name) && requires_property(b, name) &&
        exclude_each_other(schema, b["properties"][name], root))
      return true;
  return false;
}

}  // namespace dllm::constrain
