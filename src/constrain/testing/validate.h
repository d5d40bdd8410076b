#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "text/utf8.h"

namespace dllm::constrain::test {

/// Whether a value is valid under a JSON Schema, for the keywords that tests use: a reading of the specification that
/// shares nothing with the automata. `root`: for references.
inline bool validates(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                      const nlohmann::ordered_json& root);

namespace detail {

using Json = nlohmann::ordered_json;

inline bool has_type(const Json& value, const std::string& type) {
  if (type == "integer")
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  if (type == "number") return value.is_number();
  return value.type_name() == type;
}

inline bool type_fits(const Json& value, const Json& schema) {
  if (!schema.contains("type")) return true;
  const Json& type = schema["type"];
  if (type.is_string()) return has_type(value, type.get<std::string>());
  return std::ranges::any_of(type, [&](const Json& one) { return has_type(value, one.get<std::string>()); });
}

inline bool number_fits(const Json& value, const Json& schema) {
  const auto holds = [&](const char* key, auto compare) {
    return !schema.contains(key) || compare(value.get<double>(), schema[key].get<double>());
  };
  return holds("minimum", std::greater_equal<>()) && holds("maximum", std::less_equal<>()) &&
         holds("exclusiveMinimum", std::greater<>()) && holds("exclusiveMaximum", std::less<>());
}

inline std::int64_t length(const std::string& text) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += utf8_at(text, i).size) ++count;
  return count;
}

inline bool within(std::int64_t count, const Json& schema, const char* least, const char* most) {
  return count >= schema.value(least, std::int64_t{0}) && count <= schema.value(most, std::int64_t{1} << 40);
}

inline bool text_fits(const Json& value, const Json& schema) {
  const auto text = value.get<std::string>();
  if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>())))
    return false;
  return within(length(text), schema, "minLength", "maxLength");
}

inline bool object_fits(const Json& value, const Json& schema, const Json& root) {
  for (const Json& name : schema.value("required", Json::array()))
    if (!value.contains(name.get<std::string>())) return false;
  const Json patterns = schema.value("patternProperties", Json::object());
  for (const auto& [name, member] : value.items()) {
    bool additional = true;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      additional = false;
      if (!validates(member, schema["properties"][name], root)) return false;
    }
    for (const auto& [pattern, inner] : patterns.items()) {
      if (!std::regex_search(name, std::regex(pattern))) continue;
      additional = false;
      if (!validates(member, inner, root)) return false;
    }
    if (additional && !validates(member, schema.value("additionalProperties", Json(true)), root)) return false;
    if (!validates(Json(name), schema.value("propertyNames", Json(true)), root)) return false;
  }
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json all = schema.value(key, Json::object());
    for (const auto& [name, needed] : all.items()) {
      if (!value.contains(name)) continue;
      if (!validates(value, needed.is_array() ? Json{{"required", needed}} : needed, root)) return false;
    }
  }
  return within(static_cast<std::int64_t>(value.size()), schema, "minProperties", "maxProperties");
}

inline bool array_fits(const Json& value, const Json& schema, const Json& root) {
  const bool listed = schema.contains("items") && schema["items"].is_array();  // drafts before 2020-12
  const Json first = listed ? schema["items"] : schema.value("prefixItems", Json::array());
  const Json others = schema.value(listed ? "additionalItems" : "items", Json(true));
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!validates(value[i], i < first.size() ? first[i] : others, root)) return false;
    for (std::size_t j = 0; j < i && schema.value("uniqueItems", false); ++j)
      if (nlohmann::json(value[i]) == nlohmann::json(value[j])) return false;
  }
  if (schema.contains("contains")) {
    const auto fits = [&](const Json& item) { return validates(item, schema["contains"], root); };
    const std::int64_t least = schema.value("minContains", std::int64_t{1});
    const std::int64_t most = schema.value("maxContains", std::int64_t{1} << 40),
                       count = std::ranges::count_if(value, fits);
    if (count < least || count > most) return false;
  }
  return within(static_cast<std::int64_t>(value.size()), schema, "minItems", "maxItems");
}

inline const Json* anchored(const Json& place, const std::string& name) {
  if (!place.is_structured()) return nullptr;
  if (place.is_object() && (place.value("$anchor", Json()) == name || place.value("$dynamicAnchor", Json()) == name))
    return &place;
  for (const Json& part : place)
    if (const Json* found = anchored(part, name)) return found;
  return nullptr;
}

inline bool conditions_hold(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("not") && validates(value, schema["not"], root)) return false;
  if (!schema.contains("if")) return true;
  return validates(value, schema.value(validates(value, schema["if"], root) ? "then" : "else", Json(true)), root);
}

}  // namespace detail

inline bool validates(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                      const nlohmann::ordered_json& root) {
  using nlohmann::ordered_json;
  if (schema.is_boolean()) return schema.get<bool>();
  const auto fits = [&](const ordered_json& one) { return validates(value, one, root); };
  if (schema.contains("$ref")) {
    const std::string place = std::regex_replace(schema["$ref"].get<std::string>().substr(1), std::regex("%20"), " ");
    const bool pointer = place.empty() || place.front() == '/';
    if (!fits(pointer ? root.at(ordered_json::json_pointer(place)) : *detail::anchored(root, place))) return false;
  }
  if (!detail::conditions_hold(value, schema, root)) return false;
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum") && std::ranges::count(schema["enum"], value) == 0) return false;
  if (schema.contains("anyOf") && std::ranges::none_of(schema["anyOf"], fits)) return false;
  if (schema.contains("oneOf") && std::ranges::count_if(schema["oneOf"], fits) != 1) return false;
  if (!detail::type_fits(value, schema)) return false;
  if (value.is_number() && !detail::number_fits(value, schema)) return false;
  if (value.is_string() && !detail::text_fits(value, schema)) return false;
  if (value.is_object() && !detail::object_fits(value, schema, root)) return false;
  if (schema.contains("allOf") && !std::ranges::all_of(schema["allOf"], fits)) return false;
  return !value.is_array() || detail::array_fits(value, schema, root);
}

}  // namespace dllm::constrain::test
