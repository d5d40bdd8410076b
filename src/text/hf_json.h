#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "dllm/error.h"

/// Typed, non-throwing look-ups in the JSON of Hugging Face tokenizer files.
namespace dllm::hf {

using Json = nlohmann::json;

inline Error invalid(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "tokenizer.json", ""}; }
inline Error unsupported(std::string what, std::string hint = "") {
  return {ErrorCode::kUnsupported, std::move(what), "tokenizer.json", std::move(hint)};
}

/// The member, or nullptr when `object` is no object, lacks it or has null there.
inline const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

inline Expected<bool> flag(const Json& object, const char* key, bool otherwise) {
  const Json* value = member(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return invalid("'" + std::string(key) + "' is not a boolean");
  return value->get<bool>();
}

/// Empty if absent or not a string.
inline std::string text(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get_ref<const std::string&>() : std::string();
}

/// Parses without exceptions; nullopt for anything that is not JSON.
inline std::optional<Json> parse(const std::string& source) {
  Json parsed = Json::parse(source, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return std::nullopt;
  return parsed;
}

/// The object in the text of `file`, which errors name; an empty object for no text.
inline Expected<Json> object_of(const std::string& source, const char* file) {
  if (source.empty()) return Json(Json::object());
  std::optional<Json> parsed = parse(source);
  if (!parsed || !parsed->is_object()) return Error{ErrorCode::kInvalidFile, "this is no JSON object", file, ""};
  return *std::move(parsed);
}

}  // namespace dllm::hf
