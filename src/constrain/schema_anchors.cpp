#include "constrain/schema_anchors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "constrain/schema_node.h"

namespace dllm::constrain {
namespace {

using SchemaJson = nlohmann::ordered_json;

/// The members of what these hold are schemas, whatever their names.
bool holds_schemas(std::string_view key) {
  static constexpr std::string_view kMaps[] = {"properties",  "patternProperties", "$defs",
                                               "definitions", "dependentSchemas",  "dependencies"};
  return std::ranges::count(kMaps, key) > 0;
}

/// What these hold are values, not schemas.
bool holds_values(std::string_view key) {
  static constexpr std::string_view kValues[] = {"const", "enum", "default", "examples"};
  return std::ranges::count(kValues, key) > 0;
}

const std::string* text_at(const SchemaJson& schema, const char* key) {
  const auto found = schema.is_object() ? schema.find(key) : schema.end();
  return found != schema.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

/// A step of a JSON pointer in a fragment (RFC 6901, section 6).
std::string encoded_step(std::string_view step) {
  std::string text;
  for (const char c : step) text += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
  return text;
}

class Anchors {
 public:
  /// `map`: whether the members of `place` are schemas whose names mean nothing here.
  Expected<void> find(const SchemaJson& place, const std::string& pointer, const std::string& path, bool map = false) {
    if (!place.is_structured()) return {};
    for (const char* key : {"$anchor", "$dynamicAnchor"})
      if (const std::string* name = text_at(place, key))
        if (!places_.try_emplace(*name, pointer).second)
          return SchemaNode{place, path}.at(key).bad(fmt::format("there are two places '{}'", *name));
    several_ = several_ || (pointer != "#" && text_at(place, "$id") != nullptr);
    for (const auto& [key, value] : place.items()) {
      if (place.is_object() && !map && holds_values(key)) continue;
      const std::string trail = place.is_array() ? fmt::format("{}[{}]", path, key) : path + "." + key;
      const bool schemas = place.is_object() && !map && holds_schemas(key);
      DLLM_CHECK_OK(find(value, pointer + "/" + encoded_step(key), trail, schemas));
    }
    return {};
  }

  Expected<void> replace(SchemaJson& place, const std::string& path, bool map = false) {
    if (!place.is_structured()) return {};
    for (const char* key : {"$ref", "$dynamicRef", "$recursiveRef"}) DLLM_CHECK_OK(replace_in(place, key, path));
    for (const auto& item : place.items()) {
      if (place.is_object() && !map && holds_values(item.key())) continue;
      const std::string trail = place.is_array() ? fmt::format("{}[{}]", path, item.key()) : path + "." + item.key();
      DLLM_CHECK_OK(replace(item.value(), trail, place.is_object() && !map && holds_schemas(item.key())));
    }
    return {};
  }

  bool replaced() const { return replaced_; }

 private:
  Expected<void> replace_in(SchemaJson& place, const char* key, const std::string& path) {
    const std::string* const name = text_at(place, key);
    const bool dynamic = key != std::string_view("$ref");
    if (name == nullptr || !name->starts_with("#") || (dynamic && (several_ || place.contains("$ref")))) return {};
    if (!dynamic && (name->size() == 1 || (*name)[1] == '/')) return {};
    std::string target = *name;
    if (target.size() > 1 && target[1] != '/') {
      const auto found = places_.find(target.substr(1));
      if (found == places_.end())
        return SchemaNode{place, path}.at(key).bad(fmt::format("there is no '{}'", target),
                                                   "give the place an \"$anchor\", or write \"#/$defs/NAME\"");
      target = found->second;
    }
    place.erase(key);
    place["$ref"] = std::move(target);
    replaced_ = true;
    return {};
  }

  std::map<std::string, std::string> places_;  ///< pointers by name
  bool several_ = false;                       ///< schemas with their own names
  bool replaced_ = false;
};

/// Most schemas have no such references, and need no copy.
bool refers_by_name(const SchemaJson& place) {
  if (!place.is_structured()) return false;
  for (const char* key : {"$dynamicRef", "$recursiveRef"})
    if (text_at(place, key) != nullptr) return true;
  const std::string* const name = text_at(place, "$ref");
  if (name != nullptr && name->size() > 1 && name->starts_with("#") && (*name)[1] != '/') return true;
  return std::ranges::any_of(place, refers_by_name);
}

}  // namespace

Expected<std::optional<SchemaJson>> without_anchors(const SchemaJson& schema) {
  if (!refers_by_name(schema)) return std::optional<SchemaJson>();
  Anchors anchors;
  DLLM_CHECK_OK(anchors.find(schema, "#", "$"));
  SchemaJson copy = schema;
  DLLM_CHECK_OK(anchors.replace(copy, "$"));
  return anchors.replaced() ? std::optional(std::move(copy)) : std::nullopt;
}

}  // namespace dllm::constrain
