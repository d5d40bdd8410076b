#include "model/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/try.h"
#include "format/strict_json.h"

namespace dllm {

using Json = nlohmann::json;

Expected<HfConfig> HfConfig::parse(const std::string& text, std::string file) {
  HfConfig config;
  config.file_ = std::move(file);
  // Nesting is limited: copying a value takes stack for each level.
  auto json = parse_strict_json(std::as_bytes(std::span(text)), config.file_);
  if (!json || !json->is_object())
    return Error{ErrorCode::kInvalidFile, "not a JSON object", config.file_,
                 "the file is damaged or cut short: fetch it again"};
  config.json_ = std::make_shared<const Json>(*std::move(json));
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
          value ? fmt::format("'{}' is {}, wanted {}", key, value->dump(), wanted)
                : fmt::format("'{}' is missing (wanted {})", key, wanted),
          file_, ""};
}

Expected<std::optional<std::int64_t>> HfConfig::optional_integer(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::optional<std::int64_t>{};
  // Lists occur for token ids (several eos tokens); the first one is the main one.
  if (value->is_array() && !value->empty()) value = &value->front();
  if (!value->is_number_integer()) return wrong_type(key, "an integer");
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
  if (!value->is_number()) return wrong_type(key, "a number");
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
               fmt::format("'{}' is {}, and only {} is supported", key, value->dump(), expected.dump()), file_, ""};
}

}  // namespace dllm
