#include "constrain/schema_keywords.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dllm::constrain {
namespace {

constexpr std::string_view kTypes[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

/// A keyword that restricts values, of any draft.
struct Keyword {
  std::string_view name;
  std::string_view type;  ///< of the values that it restricts; "number": integers too; empty: of all
};

constexpr Keyword kKeywords[] = {
    {"type", ""},
    {"$ref", ""},
    {"const", ""},
    {"enum", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"not", ""},
    {"if", ""},
    {"then", ""},
    {"else", ""},
    {"$dynamicRef", ""},
    {"$recursiveRef", ""},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"unevaluatedItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"contains", "array"},
    {"minContains", "array"},
    {"maxContains", "array"},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"patternProperties", "object"},
    {"unevaluatedProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"dependentRequired", "object"},
    {"dependentSchemas", "object"},
    {"dependencies", "object"},
};

const Keyword* keyword(std::string_view name) {
  const auto* found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found == std::ranges::end(kKeywords) ? nullptr : found;
}

bool applies(const Keyword& one, std::span<const std::string> types) {
  return one.type.empty() || std::ranges::any_of(types, [&](const std::string& type) {
           return type == one.type || (type == "integer" && one.type == "number");
         });
}

}  // namespace

std::span<const std::string_view> schema_types() { return kTypes; }

bool restricts(std::string_view key) { return keyword(key) != nullptr; }

std::vector<std::string> implied_types(const nlohmann::ordered_json& schema) {
  std::vector<std::string> types;
  for (const auto& [key, value] : schema.items())
    if (const Keyword* one = keyword(key); one != nullptr && !one->type.empty())
      if (std::ranges::count(types, one->type) == 0) types.emplace_back(one->type);
  return types;
}

Expected<void> check_keywords(const SchemaNode& node, std::span<const std::string_view> read,
                              std::span<const std::string> types) {
  for (const auto& [key, value] : node.json.items()) {
    const Keyword* const one = keyword(key);
    if (one != nullptr && applies(*one, types) && std::ranges::count(read, key) == 0)
      return node.at(key).bad("the keyword is not supported here", "docs/guide/structure.md lists those that are");
  }
  return {};
}

}  // namespace dllm::constrain
