#pragma once

#include <memory>
#include <optional>

#include "serve/answer_reader.h"

namespace dllm::serve {

/// What a message repeats of its request.
struct MessageFacts {
  std::size_t prompt_tokens = 0;
  Json edits{};  ///< what `context_management` did; null: it was not given
};

/// Answers of POST /v1/messages.
std::unique_ptr<AnswerFormat> messages_format(const CallPtr& call, MessageFacts facts, AnswerReader reader);

/// What a response repeats of its request.
struct ResponseFacts {
  Json text = {{"format", {{"type", "text"}}}};
  Json instructions, max_output_tokens, temperature, top_p, metadata, reasoning;
  Json tools = Json::array(), tool_choice = "auto";
};

/// Answers of POST /v1/responses.
std::unique_ptr<AnswerFormat> responses_format(const CallPtr& call, ResponseFacts facts, AnswerReader reader);

/// Answers in llama.cpp's own form, of POST /infill and /completion. `prompt`: repeated, if it was a text.
std::unique_ptr<AnswerFormat> llama_format(const CallPtr& call, Json prompt = nullptr);

}  // namespace dllm::serve
