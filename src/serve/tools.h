#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api.h"

namespace dllm::serve {

/// Tools that a model may call, and the text in which it does: <tool_call>{"name": …, "arguments": {…}}</tool_call>,
/// one block per call, as the chat templates of Qwen (Hermes) and LLaDA2 teach it.
struct Tools {
  Json list = Json::array();  ///< OpenAI's `tools`
  bool parallel = true;       ///< several calls in one answer count
};

/// `tools`, `tool_choice`, `parallel_tool_calls`. Nothing if no tool may be called. Errors: kUsage (a call that is to
/// be forced, tools of other types).
Expected<std::optional<Tools>> read_tools(Fields& fields);

/// Ids of the field `messages` through the chat template: as plain turns, or, where there are tools, calls or their
/// results, with all that a template may ask of a message. Errors: kUsage (messages that are none; with tools also a
/// template that knows none, and texts of control tokens).
Expected<std::vector<std::int32_t>> conversation_ids(const Api& api, const Json& messages,
                                                     const std::optional<Tools>& tools);

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON
};

struct ToolAnswer {
  std::string text;  ///< in front of the calls
  std::vector<ToolCall> calls;
};

/// An answer that is complete. What is not well formed, or calls a tool that was not given, is text.
ToolAnswer parse_tool_calls(std::string_view answer, const Tools& tools);

/// Bytes at the front of an answer that goes on, which no call will take back.
std::size_t text_before_calls(std::string_view answer);

}  // namespace dllm::serve
