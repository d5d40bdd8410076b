#include "engine/strict_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "base/try.h"

namespace dllm {

Expected<StrictObject> StrictObject::of(const nlohmann::json& json, std::string place) {
  if (!json.is_object()) return Error{ErrorCode::kInvalidFile, "not an object", std::move(place), kHint};
  return StrictObject(json, std::move(place));
}

bool StrictObject::has(const std::string& key) const { return json_->contains(key); }

Expected<const nlohmann::json*> StrictObject::value(const std::string& key) {
  read_.push_back(key);
  const auto found = json_->find(key);
  if (found == json_->end()) return error("is missing", key);
  return &*found;
}

Expected<std::int64_t> StrictObject::integer(const std::string& key, std::int64_t least, std::int64_t most) {
  DLLM_TRY(const nlohmann::json* const value, this->value(key));
  return in_range(*value, key, least, most);
}

Expected<std::int64_t> StrictObject::in_range(const nlohmann::json& value, const std::string& key, std::int64_t least,
                                              std::int64_t most) const {
  const bool small = !value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!value.is_number_integer() || !small || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    return error(fmt::format("not an integer from {} to {}", least, most), key);
  return value.get<std::int64_t>();
}

Expected<std::string> StrictObject::text(const std::string& key) {
  DLLM_TRY(const nlohmann::json* const value, this->value(key));
  if (!value->is_string()) return error("not a string", key);
  return value->get<std::string>();
}

Expected<std::int32_t> StrictObject::count(const std::string& key, std::int64_t least, std::int64_t most) {
  DLLM_TRY(const std::int64_t value, integer(key, least, most));
  return static_cast<std::int32_t>(value);
}

Expected<void> StrictObject::finish() const {
  for (const auto& [key, value] : json_->items())
    if (std::find(read_.begin(), read_.end(), key) == read_.end())
      return error("the key is unknown", key, choice_hint(key, read_));
  return {};
}

}  // namespace dllm
