#pragma once

#include <optional>

#include "serve/tools.h"

namespace dllm::serve {

// Tools, calls and results as other APIs write them, in the form of chat completions. `field` is the name of the list
// in the request. Errors: kUsage.

/// Anthropic's `tools` and `tool_choice` (API reference, "Messages"); nothing if no tool may be called.
Expected<std::optional<Tools>> read_anthropic_tools(Fields& fields);

/// `tools`, `tool_choice` and `parallel_tool_calls` of the Responses API; nothing if no tool may be called.
Expected<std::optional<Tools>> read_response_tools(Fields& fields);

/// Blocks "tool_use" become `tool_calls` of their message, its thoughts `reasoning_content`, each block "tool_result" a
/// message of the role `tool`. Other messages are unchanged; malformed ones are refused when the conversation is read.
Expected<Json> messages_from_anthropic(const Json& list, const std::string& field, Ignored& ignored);

/// Items "reasoning" become `reasoning_content` of the assistant's message after them, items "function_call"
/// `tool_calls` of the one before them, or of a new one, and "function_call_output" messages of the role `tool`. Other
/// items are unchanged, as above.
Expected<Json> messages_from_response_items(const Json& list, const std::string& field, Ignored& ignored);

}  // namespace dllm::serve
