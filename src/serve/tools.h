#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api.h"

namespace dllm::serve {

/// Tools that a model may call. An answer has one block per call, in one of call_forms().
struct Tools {
  Json list = Json::array();                   ///< OpenAI's `tools`
  bool parallel = true;                        ///< an answer may contain several calls
  bool forced = false;                         ///< an answer is calls and nothing else
  bool strict = false;                         ///< a tool's calls are to follow its schema also if they are not forced
  std::string only;                            ///< of a forced call: the tool; empty: any
  std::string schema = "function.parameters";  ///< where a tool of the request has its schema, for errors
  std::string stop = "stop";                   ///< the request's field of stop texts, for errors
};

/// What `tool_choice` says.
struct ToolChoice {
  bool callable = true, forced = false;
  std::string only;                                   ///< see Tools
  std::optional<std::vector<std::string>> allowed{};  ///< names of tools; the others do not count
};

/// Reads the forms of all APIs: "auto", "none", "required"; {"type": name} with these names, "any", or "tool" or
/// "function" with the name of a tool; OpenAI's "allowed_tools". `choice`: null if it is absent. Errors: kUsage.
Expected<ToolChoice> read_choice(const Json* choice);

/// `tools` under this choice; nothing if no tool may be called. Errors: kUsage (a call is forced, and there is no such
/// tool).
Expected<std::optional<Tools>> under_choice(Tools tools, const ToolChoice& choice);

/// The same. If a tool asks for strict calls and they are not enforced, `strict` is named as ignored.
Expected<std::optional<Tools>> tools_of(Fields& fields, Tools tools, const ToolChoice& chosen);

/// What tools ask of the options: if a call is forced, the structure of calls and no other; if it is not and the answer
/// has a structure, that or calls. Errors: kUsage, `where` is the path of what a forced tool's schema has and no call
/// can be held to ("tools[0].function.parameters.properties.age.format").
Expected<void> apply_tools(const std::optional<Tools>& tools, GenerateOptions& options);

/// Whether a request has a tool of this name.
bool is_tool(const Tools& tools, std::string_view name);

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Nothing if no tool may be called. Errors: kUsage (tools of
/// other types, a choice that cannot be met).
Expected<std::optional<Tools>> read_tools(Fields& fields);

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON
};

struct ToolAnswer {
  std::string text;  ///< before the calls
  std::vector<ToolCall> calls;
};

/// Parses a complete answer. Malformed calls and calls of unknown tools are text.
ToolAnswer parse_tool_calls(std::string_view answer, const Tools& tools);

/// Bytes at the front of an unfinished answer that cannot turn out to be part of a call.
std::size_t text_before_calls(std::string_view answer);

}  // namespace dllm::serve
