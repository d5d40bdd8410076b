#include "serve/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/try.h"
#include "constrain/json_schema.h"

namespace dllm::serve {
namespace {

constexpr std::size_t kMostAlternatives = 1024;
constexpr std::size_t kLongestSchema = 256U << 10U;  ///< bytes; each choice of a request keeps a copy

Expected<void> set_schema(const Json& schema, const std::string& field, GenerateOptions& options) {
  if (options.json_schema || options.regex)
    return Error{ErrorCode::kUsage, "another field gives the answer a structure too", field, "leave one out"};
  if (const auto pattern = constrain::schema_pattern(schema); !pattern) {
    Error error = pattern.error();
    error.where = field + error.where.substr(1);  // "$" is the schema
    return error;
  }
  options.json_schema = dump(schema);
  if (options.json_schema->size() > kLongestSchema)
    return Error{ErrorCode::kUsage, fmt::format("the schema has more than {} bytes", kLongestSchema), field, ""};
  return {};
}

Expected<void> set_regex(std::string regex, const std::string& field, GenerateOptions& options) {
  if (options.json_schema || options.regex)
    return Error{ErrorCode::kUsage, "another field gives the answer a structure too", field, "leave one out"};
  options.regex = std::move(regex);
  return {};
}

Expected<void> no_more(const Fields& fields, const std::string& place, const char* hint) {
  for (const std::string& rest : fields.rest())
    return Error{ErrorCode::kUsage, "there is no such field", place + "." + rest, hint};
  return {};
}

/// {"type": "json_schema", "schema": ...}; `inner`: the schema is in an object of this name. {"type": "json_object"}
/// may have a schema too (llama.cpp's form). A schema next to another type would be meant and not hold: an error.
Expected<void> read_format(const Json& format, const std::string& field, const char* inner, GenerateOptions& options) {
  if (!format.is_object()) return wrong_type(field, "an object");
  Fields own(format);
  DLLM_TRY(const auto type, own.text("type"));
  if (type == "text") return no_more(own, field, "give \"type\": \"json_schema\" for a structure");
  if (type == "json_object") {
    const Json any = {{"type", "object"}};
    const Json* schema = own.find("schema");
    DLLM_CHECK_OK(no_more(own, field, "leave it out, or give \"type\": \"json_schema\""));
    return set_schema(schema == nullptr ? any : *schema, schema == nullptr ? field : field + ".schema", options);
  }
  if (type != "json_schema") return wrong_type(field + ".type", "\"text\", \"json_object\" or \"json_schema\"");
  const std::string place = inner == nullptr ? field : field + "." + inner;
  const Json* holder = inner == nullptr ? &format : own.find(inner);
  if (inner != nullptr) DLLM_CHECK_OK(no_more(own, field, "leave it out"));
  if (holder == nullptr || !holder->is_object()) return wrong_type(place, "an object with a \"schema\"");
  Fields fields(*holder);
  const Json* schema = fields.find("schema");
  if (schema == nullptr) return wrong_type(place + ".schema", "given");
  // A schema always holds here, so `strict` changes nothing.
  for (const char* known : {"name", "description", "strict"}) fields.find(known);
  if (inner == nullptr) fields.find("type");
  DLLM_CHECK_OK(no_more(fields, place, "leave it out"));
  return set_schema(*schema, place + ".schema", options);
}

/// OpenAI's `text` of responses.
Expected<void> read_text_field(const Json& text, GenerateOptions& options) {
  if (!text.is_object()) return wrong_type("text", "an object");
  Fields own(text);
  if (const Json* format = own.find("format")) DLLM_CHECK_OK(read_format(*format, "text.format", nullptr, options));
  DLLM_TRY(const auto verbosity, own.text("verbosity"));
  if (verbosity && verbosity != "medium") return wrong_type("text.verbosity", "\"medium\"");
  return no_more(own, "text", "leave it out");
}

/// The texts as alternatives of an expression.
std::string alternatives(const std::vector<std::string>& texts) {
  constexpr std::string_view kSpecial = "\\^$.|?*+()[]{}";
  std::string regex;
  for (const std::string& text : texts) {
    regex += regex.empty() ? "(" : "|";
    for (const char c : text) {
      if (kSpecial.find(c) != std::string_view::npos) regex += '\\';
      regex += c;
    }
  }
  return regex + ")";
}

}  // namespace

bool may_compile(const Json& body) {
  constexpr std::string_view kFields[] = {"response_format", "text",          "json_schema", "guided_json", "regex",
                                          "guided_regex",    "guided_choice", "tools",       "functions",   "format",
                                          "output_config",   "output_format", "json-schema"};
  return std::ranges::any_of(kFields, [&](std::string_view field) { return body.contains(field); });
}

Expected<void> read_structure(Fields& fields, GenerateOptions& options) {
  if (const Json* format = fields.find("response_format"))
    DLLM_CHECK_OK(read_format(*format, "response_format", "json_schema", options));
  if (const Json* text = fields.find("text")) DLLM_CHECK_OK(read_text_field(*text, options));
  for (const char* key : {"json_schema", "guided_json"}) {
    const Json* schema = fields.find(key);
    if (schema == nullptr || (schema->is_object() && schema->empty())) continue;
    if (!schema->is_string()) {
      DLLM_CHECK_OK(set_schema(*schema, key, options));
      continue;
    }
    DLLM_TRY(const Json parsed, parse_text(schema->get_ref<const std::string&>(), "the schema", key));
    DLLM_CHECK_OK(set_schema(parsed, key, options));
  }
  DLLM_TRY(auto regex, fields.text("guided_regex"));
  if (regex) DLLM_CHECK_OK(set_regex(*std::move(regex), "guided_regex", options));
  if (fields.find("guided_choice") == nullptr) return {};
  DLLM_TRY(const auto texts, fields.texts("guided_choice", kMostAlternatives));
  if (texts.empty()) return wrong_type("guided_choice", "a list of texts");
  return set_regex(alternatives(texts), "guided_choice", options);
}

}  // namespace dllm::serve
