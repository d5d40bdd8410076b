#include "serve/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json_object.h"
#include "base/json_reader.h"
#include "base/try.h"

namespace dllm::serve {
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Expected<Json> parse_text(std::string_view text, const std::string& what, const std::string& field,
                          std::stop_token stop) {
  auto json = read_json<Json>(text, {.bytes = std::size_t{1} << 30,  // --max-body limits it
                                     .depth = kMostLevels,
                                     .keys = kMostKeys,
                                     .values = kMostValues,
                                     .code = ErrorCode::kUsage,
                                     .root = field,
                                     .stop = std::move(stop)});
  if (json) return json;
  Error error = std::move(json).error();
  error.what = what + " is refused: " + error.what;
  return error;
}

Expected<Json> parse_body(std::string_view text, std::stop_token stop) {
  DLLM_TRY(Json json, parse_text(text, "the body", "", std::move(stop)));
  if (!json.is_object())
    return Error{ErrorCode::kUsage, "the body is not a JSON object: it is " + std::string(json.type_name()), "", ""};
  return json;
}

Error wrong_type(std::string_view field, std::string_view wanted) {
  return {ErrorCode::kUsage, fmt::format("it must be {}", wanted), std::string(field), ""};
}

void Ignored::add(std::string_view name) {
  // A header holds no other characters, and has an end.
  constexpr std::size_t kMost = 32, kLongest = 80;
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           c == '-' || c == '[' || c == ']';
  };
  std::string shown(name.substr(0, kLongest));
  std::ranges::replace_if(shown, [&](char c) { return !plain(c); }, '?');
  if (names_.size() < kMost) names_.insert(std::move(shown));
}

std::string Ignored::text() const {
  std::string text;
  for (const std::string& name : names_) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Fields::Fields(const Json& object, Ignored* ignored, std::string place)
    : object_(object), ignored_(ignored), place_(std::move(place)) {
  constexpr std::size_t kFew = 16;
  if (!object.is_object() || object.size() <= kFew) return;
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) index_.emplace_back(key, &value);
  std::ranges::sort(index_);
}

std::string Fields::path(std::string_view key) const {
  return place_.empty() ? std::string(key) : place_ + "." + std::string(key);
}

Error Fields::error(std::string_view key, std::string what, std::string hint) const {
  return {ErrorCode::kUsage, std::move(what), path(key), std::move(hint)};
}

Error Fields::wrong(std::string_view key, std::string_view, std::string_view wanted) const {
  return wrong_type(path(key), wanted);
}

Error Fields::unknown(std::string_view key, std::string hint) const {
  // Requests have too many fields to list.
  return error(key, "there is no such field", hint.starts_with("did you mean") ? std::move(hint) : "");
}

void Fields::ignore(std::string_view key) {
  if (find(key) != nullptr && ignored_ != nullptr) ignored_->add(path(key));
}

const Json* Fields::find(std::string_view key) {
  allow(key);
  return member(key);
}

const Json* Fields::member(std::string_view key) const {
  const Json* value = nullptr;
  if (index_.empty()) {
    if (const auto found = object_.find(key); found != object_.end()) value = &*found;
  } else {
    const auto found = std::ranges::lower_bound(index_, key, {}, [](const auto& one) { return one.first; });
    if (found != index_.end() && found->first == key) value = found->second;
  }
  return value == nullptr || value->is_null() ? nullptr : value;
}

StrictObject::Value Fields::value(std::string_view key) const {
  const Json* found = member(key);
  return found == nullptr ? Value() : json_value(*found);
}

bool Fields::visit_list(std::string_view key, const std::function<bool(Value)>& visit) const {
  const Json* found = member(key);
  if (found == nullptr || !found->is_array()) return false;
  for (const Json& one : *found)
    if (!visit(json_value(one))) break;
  return true;
}

std::vector<std::string> Fields::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null()) names.push_back(key);
  return names;
}

Expected<bool> Fields::flag(std::string_view key, bool otherwise) {
  DLLM_TRY(const std::optional<bool> given, optional_boolean(key));
  return given.value_or(otherwise);
}

Expected<std::vector<std::string>> Fields::texts(std::string_view key, std::size_t most) {
  const Json* value = find(key);
  std::vector<std::string> result;
  if (value == nullptr) return result;
  if (value->is_string()) {
    result.push_back(value->get<std::string>());
    return result;
  }
  if (!value->is_array() || value->size() > most)
    return wrong_type(path(key), fmt::format("a text, or up to {} texts", most));
  for (const Json& one : *value) {
    if (!one.is_string()) return wrong_type(path(key), "a text or a list of texts");
    result.push_back(one.get<std::string>());
  }
  return result;
}

Expected<std::vector<std::int32_t>> token_ids(const Json& list, std::string_view field) {
  std::vector<std::int32_t> ids;
  if (!list.is_array()) return wrong_type(field, "a list of token ids");
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max())
      return wrong_type(field, "a list of token ids");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace dllm::serve
