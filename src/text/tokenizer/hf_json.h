#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "dllm/error.h"

/// Typed, non-throwing look-ups in the JSON of Hugging Face tokenizer files.
namespace dllm::hf {

using Json = nlohmann::json;

Error invalid(std::string what);
Error unsupported(std::string what, std::string hint = "");

/// The member, or nullptr if `object` is not an object, lacks it or has null there.
const Json* member(const Json& object, const char* key);

Expected<bool> flag(const Json& object, const char* key, bool otherwise);

/// Empty if absent or not a string.
std::string text(const Json& object, const char* key);

/// Parses without exceptions; nullopt for anything that is not JSON.
std::optional<Json> parse(const std::string& source);

/// The object in the text of `file`, which errors name; an empty object for no text.
Expected<Json> object_of(const std::string& source, const char* file);

}  // namespace dllm::hf
