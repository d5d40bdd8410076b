#include "constrain/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/percent.h"
#include "base/try.h"

namespace dllm::constrain {
namespace {

constexpr std::string_view kTypes[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

bool has_type(const nlohmann::ordered_json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "integer")  // 1.0 is one (JSON Schema 2020-12, section 4.2.2)
    return value.is_number_integer() ||
           (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  return value.is_object();
}

/// The integer next to a bound, on the allowed side: its ceiling if `sign` is 1, its floor if it is -1, and the integer
/// beyond where the bound itself is excluded. nullopt: it is beyond 64 bits.
std::optional<std::int64_t> next_integer(const nlohmann::ordered_json& bound, int sign, bool excluded) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (bound.is_number_float()) {
    const double value = bound.get<double>();
    const double whole = sign > 0 ? std::ceil(value) : std::floor(value);
    const double next = excluded && whole == value ? whole + sign : whole;
    // 2^63 is exact in a double, the largest integer of 64 bits is not.
    if (next >= 0x1p63) return sign > 0 ? std::nullopt : std::optional(Limits::max());
    if (next < -0x1p63) return sign < 0 ? std::nullopt : std::optional(Limits::min());
    return static_cast<std::int64_t>(next);
  }
  if (bound.is_number_unsigned() && bound.get<std::uint64_t>() > static_cast<std::uint64_t>(Limits::max()))
    return sign > 0 ? std::nullopt : std::optional(Limits::max());
  const auto value = bound.get<std::int64_t>();
  if (!excluded) return value;
  if (value == (sign > 0 ? Limits::max() : Limits::min())) return std::nullopt;
  return value + sign;
}

/// The tightest of two bounds: `sign` 1: lower ones.
Expected<std::optional<std::int64_t>> tightest(const SchemaNode& node, const char* included, const char* excluded,
                                               int sign) {
  std::optional<std::int64_t> result;
  for (const char* key : {included, excluded}) {
    if (!node.json.contains(key)) continue;
    const SchemaNode own = node.at(key);
    if (!own.json.is_number()) return own.bad("it must be a number");
    const auto bound = next_integer(own.json, sign, key == excluded);
    if (!bound) return own.bad("no integer of 64 bits is within the bound");
    result = !result ? *bound : sign > 0 ? std::max(*result, *bound) : std::min(*result, *bound);
  }
  return result;
}

}  // namespace

Expected<std::optional<std::int64_t>> SchemaNode::least_integer() const {
  return tightest(*this, "minimum", "exclusiveMinimum", 1);
}

Expected<std::optional<std::int64_t>> SchemaNode::greatest_integer() const {
  return tightest(*this, "maximum", "exclusiveMaximum", -1);
}

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

Expected<bool> SchemaNode::allows_type_of(const nlohmann::ordered_json& value) const {
  if (!json.contains("type")) return true;
  DLLM_TRY(const auto names, types());
  return std::ranges::any_of(names, [&](const std::string& name) { return has_type(value, name); });
}

Expected<SchemaNode> SchemaNode::resolve(const nlohmann::ordered_json& root) const {
  const SchemaNode own = at("$ref");
  if (!own.json.is_string() || !own.json.get_ref<const std::string&>().starts_with("#"))
    return own.bad("only references within the schema are supported", "write \"#/$defs/NAME\"");
  // A reference is a URI (RFC 6901, section 6): its fragment is percent-encoded.
  const auto decoded = percent_decoded(own.json.get_ref<const std::string&>());
  if (!decoded) return own.bad("a percent sign must begin a byte in hexadecimal", "write %25 for it");
  const std::string& name = *decoded;
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
