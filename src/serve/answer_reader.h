#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer.h"
#include "serve/conversation.h"

namespace dllm::serve {

/// An answer's parts: thoughts, then text, then calls.
struct ParsedAnswer {
  std::string thoughts, text;
  std::vector<ToolCall> calls{};
  std::size_t thought_bytes = 0;  ///< see SplitAnswer
};

/// How the answers to one request are read.
class AnswerReader {
 public:
  AnswerReader() = default;
  explicit AnswerReader(std::optional<Tools> tools) : tools_(std::move(tools)) {}
  AnswerReader(const ServedModel& served, std::optional<Tools> tools, Thinking thinking, std::string opening);

  ParsedAnswer parse(const std::string& answer) const;
  /// What may be sent of an answer that is not `complete`.
  ShownAnswer shown(const std::string& answer, bool complete) const;

  /// Reads control tokens and structures so that thoughts can be told apart: sets AnswerRequest::shown and, if the
  /// options ask for a structure that is not an expression for the whole answer, AnswerRequest::preamble.
  void prepare(AnswerRequest& request, const GenerateOptions& options, const Json& body) const;

  /// Tokens of the answer's thoughts.
  std::int64_t thought_tokens(const LanguageModel& model, const Generation& answer) const;
  bool thinks() const { return static_cast<bool>(format_); }
  const std::optional<Tools>& tools() const { return tools_; }
  const Thinking& thinking() const { return thinking_; }

 private:
  std::optional<Tools> tools_;
  Thinking thinking_;
  ThoughtFormat format_;
  std::string opening_;
  std::vector<std::int32_t> markers_;
};

/// Renders a conversation, and how answers to it are read.
struct PreparedConversation {
  std::vector<std::int32_t> ids;
  AnswerReader reader;
  std::shared_ptr<const PromptImages> images{};  ///< of the prompt; null: none
};
Expected<PreparedConversation> prepare(const CallPtr& call, Conversation conversation, std::optional<Tools> tools,
                                       const Thinking& thinking, const GenerateOptions& options);

}  // namespace dllm::serve
