#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/json.h"

namespace dllm::serve {

/// How a model writes a call of a tool. Which of these an answer has is told by the answer.
struct CallForm {
  std::string_view open, close;
  std::vector<std::string_view> markers;  ///< all texts that structure a call; they may be control tokens
};

/// <tool_call>{"name": …, "arguments": {…}}</tool_call>, as Qwen (Hermes) and LLaDA2; and Gemma 4's
/// <|tool_call>call:NAME{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>.
const std::vector<CallForm>& call_forms();

struct WrittenCall {
  std::string name;
  Json arguments = Json::object();
  std::size_t bytes = 0;  ///< of the text, from `open` to the end of `close`
};

/// The call at the beginning of a text, which starts with the form's `open`. nullopt: it is malformed, or not complete.
std::optional<WrittenCall> read_call(const CallForm& form, std::string_view text);

}  // namespace dllm::serve
