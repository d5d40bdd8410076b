#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "constrain/pattern.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// A schema that a call's arguments may have: one of objects. Absent (null) and {}: any object. `path` and
/// errors: as schema_pattern(); kUsage, if the schema allows other values than objects.
Expected<PatternPtr> arguments_pattern(const nlohmann::ordered_json& schema, const std::string& path = "$");

/// Calls of tools in the format of the chat templates of Qwen (Hermes) and LLaDA2, and nothing else:
/// <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>, with at most one newline between the parts. `text`:
/// {"tools": [{"name": NAME, "parameters": SCHEMA}, ...], "several": BOOL}; with `several` there may be any number of
/// calls, but one at least. Errors: kUsage, `where` is the path ("$.tools[0].parameters.properties.age.format").
Expected<PatternPtr> parse_tool_calls(std::string_view text);

}  // namespace dllm::constrain
