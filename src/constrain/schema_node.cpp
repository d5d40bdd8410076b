#include "constrain/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "constrain/schema_keywords.h"

namespace dllm::constrain {
namespace {

/// A reference looks its steps up one by one, in objects that are not indexed.
constexpr std::size_t kMostDefinitions = 1024;

bool is_whole(const nlohmann::ordered_json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

bool has_type(const nlohmann::ordered_json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return is_whole(value);
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  return value.is_object();
}

/// A step of a reference: percent-decoded, then ~1 and ~0 (RFC 6901, section 6). nullopt: a percent sign without two
/// hexadecimal digits.
std::optional<std::string> decoded_step(std::string_view step) {
  std::string text;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '%') {
      text += step[i];
      continue;
    }
    std::uint8_t byte = 0;
    const std::string_view hex = step.substr(i + 1, 2);
    const auto [end, wrong] = std::from_chars(hex.data(), hex.data() + hex.size(), byte, 16);
    if (hex.size() != 2 || wrong != std::errc() || end != hex.data() + 2) return std::nullopt;
    text += static_cast<char>(byte);
    i += 2;
  }
  for (const auto& [code, character] : {std::pair("~1", "/"), std::pair("~0", "~")})
    for (std::size_t at = text.find(code); at != text.npos; at = text.find(code, at + 1))
      text.replace(at, 2, character);
  return text;
}

/// A member of an object, or an item of a list by its number; null: there is none.
const nlohmann::ordered_json* step_into(const nlohmann::ordered_json& place, const std::string& step) {
  if (place.is_object()) {
    const auto found = place.find(step);
    return found == place.end() ? nullptr : &*found;
  }
  std::size_t index = 0;
  const auto [end, wrong] = std::from_chars(step.data(), step.data() + step.size(), index);
  const bool number = wrong == std::errc() && end == step.data() + step.size() && (step == "0" || step[0] != '0');
  return number && place.is_array() && index < place.size() ? &place[index] : nullptr;
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
  if (!is_whole(own.json)) return wrong;
  if (own.json.is_number_float() && std::abs(own.json.get<double>()) > 0x1p62) return wrong;
  if (own.json.is_number_unsigned() && own.json.get<std::uint64_t>() > std::uint64_t{1} << 62) return wrong;
  const auto value = own.json.get<std::int64_t>();
  if (value < minimum || value > maximum) return wrong;
  return std::optional(value);
}

Expected<std::vector<std::string>> SchemaNode::types() const {
  if (!json.contains("type")) return implied_types(json);
  const SchemaNode own = at("type");
  std::vector<std::string> names;
  const auto add = [&](const nlohmann::ordered_json& name, const SchemaNode& place) -> Expected<void> {
    if (!name.is_string() || std::ranges::count(schema_types(), name.get_ref<const std::string&>()) == 0)
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

Expected<bool> SchemaNode::type_admits(const nlohmann::ordered_json& value) const {
  if (!json.contains("type")) return true;
  DLLM_TRY(const auto names, types());
  return std::ranges::any_of(names, [&](const std::string& name) { return has_type(value, name); });
}

Expected<SchemaNode> SchemaNode::resolve(const nlohmann::ordered_json& root) const {
  const SchemaNode own = at("$ref");
  if (!own.json.is_string() || !own.json.get_ref<const std::string&>().starts_with("#"))
    return own.bad("only references within the schema are supported", "write \"#/$defs/NAME\"");
  const std::string name = own.json.get<std::string>();
  if (name == "#") return SchemaNode{root, "$"};
  std::string trail = "$";
  const nlohmann::ordered_json* place = &root;
  if (!name.starts_with("#/")) return own.bad(fmt::format("there is no '{}'", name), "write \"#/$defs/NAME\"");
  for (std::size_t from = 2; from <= name.size();) {
    const std::size_t end = std::min(name.find('/', from), name.size());
    const auto step = decoded_step(std::string_view(name).substr(from, end - from));
    if (!step) return own.bad("a percent sign needs two hexadecimal digits", "write %25 for the sign itself");
    if (place->size() > kMostDefinitions)
      return own.bad(fmt::format("it is among more than {} definitions", kMostDefinitions));
    place = step_into(*place, *step);
    if (place == nullptr) return own.bad(fmt::format("there is no '{}'", name));
    trail += "." + *step;
    from = end + 1;
  }
  return SchemaNode{*place, trail};
}

}  // namespace dllm::constrain
