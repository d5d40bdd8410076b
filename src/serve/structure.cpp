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

/// A schema, or one as a text. An empty one asks for nothing.
Expected<void> read_schema(const Json& schema, const std::string& field, GenerateOptions& options) {
  if (schema.is_object() && schema.empty()) return {};
  if (!schema.is_string()) return set_schema(schema, field, options);
  DLLM_TRY(const Json parsed, parse_text(schema.get_ref<const std::string&>(), "the schema", field));
  return set_schema(parsed, field, options);
}

/// Anthropic's `output_config.format`, and `output_format`, its older place.
Expected<void> read_output_fields(Fields& fields, GenerateOptions& options) {
  if (const Json* config = fields.find("output_config")) {
    if (!config->is_object()) return wrong_type("output_config", "an object");
    Fields own(*config, fields.ignored(), "output_config");
    own.find("effort");         // read_thinking() reads it
    own.ignore("task_budget");  // a model is told of it, and no template here tells
    if (const Json* format = own.find("format"))
      DLLM_CHECK_OK(read_format(*format, "output_config.format", nullptr, options));
    DLLM_CHECK_OK(own.done());
  }
  const Json* format = fields.find("output_format");
  return format == nullptr ? Expected<void>() : read_format(*format, "output_format", nullptr, options);
}

/// OpenAI's `text` of responses.
Expected<void> read_text_field(const Json& text, Ignored* ignored, GenerateOptions& options) {
  if (!text.is_object()) return wrong_type("text", "an object");
  Fields own(text, ignored, "text");
  if (const Json* format = own.find("format")) DLLM_CHECK_OK(read_format(*format, "text.format", nullptr, options));
  own.ignore("verbosity");
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

Expected<void> read_choice_texts(Fields& fields, const char* key, const std::string& path, GenerateOptions& options) {
  if (fields.find(key) == nullptr) return {};
  DLLM_TRY(const auto texts, fields.texts(key, kMostAlternatives));
  if (texts.empty()) return wrong_type(path, "a list of texts");
  return set_regex(alternatives(texts), path, options);
}

/// vLLM's object, which has replaced the guided_… fields.
Expected<void> read_structured_outputs(const Json& value, Ignored* ignored, GenerateOptions& options) {
  const std::string place = "structured_outputs";
  if (!value.is_object()) return wrong_type(place, "an object");
  Fields own(value, ignored, place);
  if (const Json* schema = own.find("json")) DLLM_CHECK_OK(read_schema(*schema, place + ".json", options));
  DLLM_TRY(auto regex, own.text("regex"));
  if (regex) DLLM_CHECK_OK(set_regex(*std::move(regex), place + ".regex", options));
  DLLM_CHECK_OK(read_choice_texts(own, "choice", place + ".choice", options));
  DLLM_TRY(const bool object, own.flag("json_object", false));
  if (object) DLLM_CHECK_OK(set_schema({{"type", "object"}}, place + ".json_object", options));
  for (const char* hint : {"disable_fallback", "_backend", "_backend_was_auto"}) own.find(hint);
  return own.done();
}

/// Fields that are read here or lead to a structure otherwise: forced calls of tools, and Ollama's `format`.
constexpr std::string_view kFields[] = {
    "response_format", "text",          "output_config", "output_format",      "json_schema", "guided_json",
    "guided_regex",    "guided_choice", "tools",         "structured_outputs", "format"};

/// All names of the options that are structures, as fields write them.
const std::vector<std::string>& option_fields() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const OptionInfo& info : options_info().common) {
      if (info.key != "regex" && info.key != "json_schema" && info.key != "tool_calls") continue;
      names.push_back(info.key);
      for (const std::string& flag : info.flags) {
        std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
        names.push_back(name);
        std::ranges::replace(name, '-', '_');
        names.push_back(std::move(name));
      }
    }
    return names;
  }();
  return all;
}

}  // namespace

bool may_compile(const Json& body) {
  const auto given = [&](std::string_view field) { return body.contains(field); };
  if (std::ranges::any_of(kFields, given) || std::ranges::any_of(option_fields(), given)) return true;
  const auto options = body.find("options");  // Ollama's
  return options != body.end() && options->is_object() &&
         std::ranges::any_of(option_fields(), [&](const std::string& field) { return options->contains(field); });
}

Expected<void> read_structure(Fields& fields, GenerateOptions& options) {
  if (const Json* format = fields.find("response_format"))
    DLLM_CHECK_OK(read_format(*format, "response_format", "json_schema", options));
  if (const Json* text = fields.find("text")) DLLM_CHECK_OK(read_text_field(*text, fields.ignored(), options));
  DLLM_CHECK_OK(read_output_fields(fields, options));
  for (const char* key : {"json_schema", "guided_json"})
    if (const Json* schema = fields.find(key)) DLLM_CHECK_OK(read_schema(*schema, key, options));
  DLLM_TRY(auto regex, fields.text("guided_regex"));
  if (regex) DLLM_CHECK_OK(set_regex(*std::move(regex), "guided_regex", options));
  DLLM_CHECK_OK(read_choice_texts(fields, "guided_choice", "guided_choice", options));
  const Json* structured = fields.find("structured_outputs");
  return structured == nullptr ? Expected<void>() : read_structured_outputs(*structured, fields.ignored(), options);
}

}  // namespace dllm::serve
