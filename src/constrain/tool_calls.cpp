#include "constrain/tool_calls.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/try.h"
#include "constrain/json_schema.h"
#include "constrain/json_text.h"

namespace dllm::constrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMostTools = 128;

Error bad_calls(std::string what, std::string where, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), std::move(where), std::move(hint)};
}

Expected<PatternPtr> call_pattern(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string())
    return bad_calls("a tool is an object with a name", path);
  for (const auto& [key, value] : tool.items())
    if (key != "name" && key != "parameters") return bad_calls("there is no such key", path + "." + key);
  DLLM_TRY(const PatternPtr arguments,
           arguments_pattern(tool.contains("parameters") ? tool["parameters"] : OrderedJson(), path + ".parameters"));
  const PatternPtr newline = maybe(literal("\n"));
  return sequence({literal("<tool_call>"), newline, literal("{\"name\""), json_colon(), literal(tool["name"].dump()),
                   json_comma(), literal("\"arguments\""), json_colon(), arguments, literal("}"), newline,
                   literal("</tool_call>")});
}

}  // namespace

Expected<PatternPtr> arguments_pattern(const OrderedJson& schema, const std::string& path) {
  if (schema.is_null() || (schema.is_object() && schema.empty())) return json_any_object(kOpenLevels);
  DLLM_TRY(PatternPtr pattern, schema_pattern(schema, path));
  if (!schema.is_object()) return bad_calls("arguments are an object, and this schema allows other values", path);
  const bool implied = !schema.contains("type") && (schema.contains("properties") || schema.contains("required"));
  if (!implied && schema.value("type", OrderedJson()) != "object")
    return bad_calls("arguments are an object, and this schema may allow other values", path + ".type",
                     "give \"type\": \"object\"");
  return pattern;
}

Expected<PatternPtr> parse_tool_calls(std::string_view text) {
  DLLM_TRY(const OrderedJson json, read_json<OrderedJson>(text, {.depth = 68, .code = ErrorCode::kUsage, .root = "$"}));
  if (!json.is_object() || !json.contains("tools") || !json["tools"].is_array())
    return bad_calls("it must be a JSON object with a list \"tools\"", "$");
  for (const auto& [key, value] : json.items())
    if (key != "tools" && key != "several") return bad_calls("there is no such key", "$." + key);
  const OrderedJson several = json.value("several", OrderedJson(false));
  if (!several.is_boolean()) return bad_calls("it must be true or false", "$.several");
  const OrderedJson& tools = json["tools"];
  if (tools.empty() || tools.size() > kMostTools)
    return bad_calls(fmt::format("{} tools", tools.size()), "$.tools", fmt::format("give 1 to {}", kMostTools));
  std::vector<PatternPtr> calls;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    DLLM_TRY(PatternPtr call, call_pattern(tools[i], fmt::format("$.tools[{}]", i)));
    calls.push_back(std::move(call));
  }
  const PatternPtr call = either(std::move(calls));
  if (!several.get<bool>()) return call;
  return sequence({call, repeat(sequence({maybe(literal("\n")), call}), 0, Pattern::kUnbounded)});
}

}  // namespace dllm::constrain
