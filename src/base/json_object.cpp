#include "base/json_object.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote_name.h"
#include "base/try.h"

namespace dllm {

template <class Json>
StrictObject::Value json_value(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return value.template get<std::string>();
    case Json::value_t::boolean:
      return value.template get<bool>();
    case Json::value_t::number_unsigned:
      if (value.template get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return value.template get<double>();
      return value.template get<std::int64_t>();
    case Json::value_t::number_integer:
      return value.template get<std::int64_t>();
    case Json::value_t::number_float:
      return value.template get<double>();
    case Json::value_t::array:
      return StrictObject::Other{"a list"};
    case Json::value_t::object:
      return StrictObject::Other{"an object"};
    default:
      return StrictObject::Other{"null"};
  }
}

template StrictObject::Value json_value(const nlohmann::json& value);
template StrictObject::Value json_value(const nlohmann::ordered_json& value);

JsonObject::JsonObject(const nlohmann::json& json, std::string place, std::string hint)
    : json_(&json), place_(std::move(place)), hint_(std::move(hint)) {}

Expected<JsonObject> JsonObject::of(const nlohmann::json& json, std::string place, std::string hint) {
  if (!json.is_object()) return Error{ErrorCode::kInvalidFile, "not an object", std::move(place), std::move(hint)};
  return JsonObject(json, std::move(place), std::move(hint));
}

Error JsonObject::error(std::string_view key, std::string what, std::string hint) const {
  const std::string shown = quote_name(key);  // a key of the file may hold what a terminal obeys
  return {ErrorCode::kInvalidFile, std::move(what),
          key.empty() ? place_ : fmt::format("{}, {}", place_, shown.substr(1, shown.size() - 2)),
          hint.empty() ? hint_ : std::move(hint)};
}

const nlohmann::json* JsonObject::find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() ? nullptr : &*found;
}

StrictObject::Value JsonObject::value(std::string_view key) const {
  const nlohmann::json* found = find(key);
  return found == nullptr ? Value() : json_value(*found);
}

bool JsonObject::visit_list(std::string_view key, const std::function<bool(Value)>& visit) const {
  const nlohmann::json* found = find(key);
  if (found == nullptr || !found->is_array()) return false;
  for (const nlohmann::json& one : *found)
    if (!visit(json_value(one))) break;
  return true;
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : json_->items()) names.push_back(key);
  return names;
}

Expected<const nlohmann::json*> JsonObject::any(std::string_view key) {
  allow(key);
  const nlohmann::json* found = find(key);
  if (found == nullptr) return missing(key, "required");
  return found;
}

Expected<const nlohmann::json*> JsonObject::list(std::string_view key) {
  DLLM_TRY(const nlohmann::json* const found, any(key));
  if (!found->is_array()) return error(key, fmt::format("'{}' is no list", key));
  return found;
}

}  // namespace dllm
