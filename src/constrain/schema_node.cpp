#include "constrain/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "base/try.h"

namespace dllm::constrain {
namespace {

constexpr std::string_view kTypes[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

bool has_type(const nlohmann::ordered_json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  return value.is_object();
}

}  // namespace

SchemaNode SchemaNode::at(const std::string& key) const { return {json.at(key), path + "." + key}; }

Error SchemaNode::bad(std::string what, std::string hint) const {
  return {ErrorCode::kUsage, std::move(what), path, std::move(hint)};
}

Expected<std::optional<std::int64_t>> SchemaNode::integer(const char* key, std::int64_t minimum,
                                                          std::int64_t maximum) const {
  if (!json.contains(key)) return std::optional<std::int64_t>();
  const SchemaNode own = at(key);
  const Error wrong = own.bad(fmt::format("it must be an integer from {} to {}", minimum, maximum));
  if (!own.json.is_number_integer()) return wrong;
  if (own.json.is_number_unsigned() && own.json.get<std::uint64_t>() > std::uint64_t{1} << 62) return wrong;
  const auto value = own.json.get<std::int64_t>();
  if (value < minimum || value > maximum) return wrong;
  return std::optional(value);
}

Expected<std::vector<std::string>> SchemaNode::types() const {
  if (!json.contains("type")) {
    for (const char* key : {"properties", "required", "additionalProperties"})
      if (json.contains(key)) return std::vector<std::string>{"object"};
    if (json.contains("items")) return std::vector<std::string>{"array"};
    return bad("the schema leaves the type open", "give \"type\", \"enum\", \"const\", \"anyOf\" or \"$ref\"");
  }
  const SchemaNode own = at("type");
  std::vector<std::string> names;
  const auto add = [&](const nlohmann::ordered_json& name, const SchemaNode& place) -> Expected<void> {
    if (!name.is_string() || std::ranges::count(kTypes, name.get_ref<const std::string&>()) == 0)
      return place.bad("there is no such type", "string, integer, number, boolean, null, array or object");
    names.push_back(name.get<std::string>());
    return {};
  };
  if (!own.json.is_array()) {
    DLLM_CHECK_OK(add(own.json, own));
  } else {
    for (std::size_t i = 0; i < own.json.size(); ++i)
      DLLM_CHECK_OK(add(own.json[i], {own.json[i], fmt::format("{}[{}]", own.path, i)}));
  }
  if (names.empty()) return own.bad("the list is empty");
  return names;
}

Expected<void> SchemaNode::check_type(const nlohmann::ordered_json& value, std::string_view place) const {
  if (!json.contains("type")) return {};
  DLLM_TRY(const auto names, types());
  if (std::ranges::any_of(names, [&](const std::string& name) { return has_type(value, name); })) return {};
  return Error{ErrorCode::kUsage, "the value is not of the type that \"type\" names", fmt::format("{}.{}", path, place),
               ""};
}

Expected<SchemaNode> SchemaNode::resolve(const nlohmann::ordered_json& root) const {
  const SchemaNode own = at("$ref");
  if (!own.json.is_string() || !own.json.get_ref<const std::string&>().starts_with("#"))
    return own.bad("only references within the schema are supported", "write \"#/$defs/NAME\"");
  const std::string name = own.json.get<std::string>();
  if (name == "#") return SchemaNode{root, "$"};
  std::string trail = "$";
  const nlohmann::ordered_json* place = &root;
  if (!name.starts_with("#/")) return own.bad("anchors are not supported", "write \"#/$defs/NAME\"");
  for (std::size_t from = 2; from <= name.size();) {
    const std::size_t end = std::min(name.find('/', from), name.size());
    std::string key = name.substr(from, end - from);
    for (const auto& [code, text] : {std::pair("~1", "/"), std::pair("~0", "~")})
      for (std::size_t at = key.find(code); at != key.npos; at = key.find(code, at + 1)) key.replace(at, 2, text);
    if (!place->is_object() || !place->contains(key)) return own.bad(fmt::format("there is no '{}'", name));
    place = &(*place)[key];
    trail += "." + key;
    from = end + 1;
  }
  return SchemaNode{*place, trail};
}

}  // namespace dllm::constrain
