#include "text/tokenizer/hf_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace dllm::hf {

Error invalid(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "tokenizer.json", ""}; }
Error unsupported(std::string what, std::string hint) {
  return {ErrorCode::kUnsupported, std::move(what), "tokenizer.json", std::move(hint)};
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Expected<bool> flag(const Json& object, const char* key, bool otherwise) {
  const Json* value = member(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return invalid("'" + std::string(key) + "' is not a boolean");
  return value->get<bool>();
}

std::string text(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get_ref<const std::string&>() : std::string();
}

std::optional<Json> parse(const std::string& source) {
  Json parsed = Json::parse(source, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return std::nullopt;
  return parsed;
}

Expected<Json> object_of(const std::string& source, const char* file) {
  if (source.empty()) return Json(Json::object());
  std::optional<Json> parsed = parse(source);
  if (!parsed || !parsed->is_object()) return Error{ErrorCode::kInvalidFile, "this is not a JSON object", file, ""};
  return *std::move(parsed);
}

}  // namespace dllm::hf
