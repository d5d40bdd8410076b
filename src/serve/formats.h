#pragma once

#include <memory>
#include <optional>

#include "serve/answer.h"
#include "serve/tools.h"

namespace dllm::serve {

/// Answers of POST /v1/messages. `prompt_tokens`: of the request, for its usage.
std::unique_ptr<AnswerFormat> messages_format(const CallPtr& call, std::size_t prompt_tokens,
                                              std::optional<Tools> tools);

/// What a response repeats of its request.
struct ResponseFacts {
  Json text = {{"format", {{"type", "text"}}}};
  Json instructions, max_output_tokens, temperature, top_p, metadata;
  Json tools = Json::array(), tool_choice = "auto";
};

/// Answers of POST /v1/responses.
std::unique_ptr<AnswerFormat> responses_format(const CallPtr& call, ResponseFacts facts, std::optional<Tools> tools);

}  // namespace dllm::serve
