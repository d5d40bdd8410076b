#include "model/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "base/try.h"
#include "format/strict_json.h"

namespace dllm {

using Json = nlohmann::json;

namespace {

/// For messages: short, and with the numbers that JSON does not have.
std::string shown(const Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return std::isnan(value.get<double>()) ? "NaN" : value.get<double>() > 0 ? "Infinity" : "-Infinity";
  constexpr std::size_t kMost = 80;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text.replace(kMost, std::string::npos, "...");
  return text;
}

}  // namespace

Expected<HfConfig> HfConfig::parse(const std::string& text, std::string file) {
  HfConfig config;
  config.file_ = std::move(file);
  // Nesting is limited: copying a value takes stack for each level.
  auto json = parse_strict_json(std::as_bytes(std::span(text)), config.file_, 0, JsonNumbers::kPython);
  if (!json || !json->is_object())
    return Error{ErrorCode::kInvalidFile, "not a JSON object", config.file_,
                 "the file is damaged or cut short: fetch it again"};
  config.json_ = std::make_shared<const Json>(*std::move(json));
  return config;
}

HfConfig HfConfig::of(const Json& object, std::string file) {
  HfConfig config;
  config.file_ = std::move(file);
  config.json_ = std::make_shared<const Json>(object);
  return config;
}

void HfConfig::attach(const std::string& key, const HfConfig& other) {
  Json changed = *json_;
  changed[key] = *other.json_;
  json_ = std::make_shared<const Json>(std::move(changed));
}

const Json* HfConfig::find(std::string_view key) const {
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

bool HfConfig::contains(std::string_view key) const { return find(key) != nullptr; }

Error HfConfig::wrong_type(std::string_view key, std::string_view wanted) const {
  const Json* value = find(key);
  return {ErrorCode::kInvalidFile,
          value ? fmt::format("'{}' is {}, wanted {}", key, shown(*value), wanted)
                : fmt::format("'{}' is missing (wanted {})", key, wanted),
          file_, ""};
}

Expected<std::optional<std::int64_t>> HfConfig::optional_integer(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::optional<std::int64_t>{};
  if (value->is_array() && !value->empty()) {
    // Of several tokens of a role (eos), the first one is the main one. Other lists are by layer.
    const Json& first = value->front();
    if (!key.ends_with("_token_id") && std::ranges::any_of(*value, [&](const Json& one) { return one != first; }))
      return Error{ErrorCode::kUnsupported, fmt::format("'{}' differs between layers: {}", key, shown(*value)), file_,
                   "models whose layers are alike are supported"};
    value = &first;
  }
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits) return wrong_type(key, "an integer");
  return std::optional<std::int64_t>{value->get<std::int64_t>()};
}

Expected<std::int64_t> HfConfig::integer(std::string_view key) const {
  DLLM_TRY(const auto value, optional_integer(key));
  if (!value) return wrong_type(key, "an integer");
  return *value;
}

Expected<std::int64_t> HfConfig::integer_or(std::string_view key, std::int64_t fallback) const {
  DLLM_TRY(const auto value, optional_integer(key));
  return value.value_or(fallback);
}

Expected<double> HfConfig::number_or(std::string_view key, double fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>())) return wrong_type(key, "a number");
  return value->get<double>();
}

Expected<bool> HfConfig::boolean_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) return wrong_type(key, "true or false");
  return value->get<bool>();
}

Expected<std::string> HfConfig::string_or(std::string_view key, std::string fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_string()) return wrong_type(key, "a string");
  return value->get<std::string>();
}

Expected<std::string> HfConfig::architecture() const {
  const Json* value = find("architectures");
  if (!value || !value->is_array() || value->empty() || !value->front().is_string())
    return wrong_type("architectures", "a list of names");
  return value->front().get<std::string>();
}

Expected<void> HfConfig::expect(std::string_view key, const Json& expected) const {
  const Json* value = find(key);
  if (!value || *value == expected) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("'{}' is {}, and only {} is supported", key, shown(*value), expected.dump()), file_, ""};
}

}  // namespace dllm
