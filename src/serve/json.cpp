#include "serve/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json_reader.h"
#include "base/nearest.h"
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

void Fields::ignore(std::string_view key) {
  if (find(key) != nullptr && ignored_ != nullptr) ignored_->add(path(key));
}

const Json* Fields::find(std::string_view key) {
  seen_.emplace(key);
  const Json* value = nullptr;
  if (index_.empty()) {
    if (const auto found = object_.find(key); found != object_.end()) value = &*found;
  } else {
    const auto found = std::ranges::lower_bound(index_, key, {}, [](const auto& one) { return one.first; });
    if (found != index_.end() && found->first == key) value = found->second;
  }
  return value == nullptr || value->is_null() ? nullptr : value;
}

Expected<std::optional<std::string>> Fields::text(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong_type(path(key), "a text");
  return std::optional(value->get<std::string>());
}

Expected<bool> Fields::flag(std::string_view key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return wrong_type(path(key), "true or false");
  return value->get<bool>();
}

Expected<std::optional<std::int64_t>> Fields::integer(std::string_view key, std::int64_t minimum,
                                                      std::int64_t maximum) {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::string wanted = fmt::format("an integer from {} to {}", minimum, maximum);
  if (!value->is_number_integer()) return wrong_type(path(key), wanted);
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(maximum))
    return wrong_type(path(key), wanted);
  const auto number = value->get<std::int64_t>();
  if (number < minimum || number > maximum) return wrong_type(path(key), wanted);
  return std::optional(number);
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

std::vector<std::string> Fields::rest() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && !seen_.contains(key)) names.push_back(key);
  return names;
}

Expected<void> Fields::done() const {
  const std::vector<std::string> names = rest();
  if (names.empty()) return {};
  const std::string near = nearest(names.front(), {seen_.begin(), seen_.end()});
  return Error{ErrorCode::kUsage, "there is no such field", path(names.front()),
               near.empty() ? "" : "did you mean '" + near + "'?"};
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
