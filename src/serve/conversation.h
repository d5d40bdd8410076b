#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/stop_token.h"
#include "serve/thinking.h"
#include "serve/tools.h"

namespace dllm::serve {

/// What was said so far, as chat completions write it.
struct Conversation {
  std::string system;  ///< before the messages; empty: none
  Json messages;
  std::string field = "messages";  ///< of the request, for errors
  bool images = true;              ///< whether its messages may have some
};

/// A conversation as the model reads it.
struct ConversationPrompt {
  std::vector<std::int32_t> ids;
  std::string opening;                           ///< its end, with which an answer begins (TemplatedPrompt)
  std::shared_ptr<const PromptImages> images{};  ///< null: none
};

/// Renders a conversation through the chat template, with all fields of its messages; `tools`: null or those of the
/// request. Thoughts of earlier answers are given to the template, which uses them or not. `structured`: see
/// template_wish(). `stop`: ends the work on images. Errors: kUsage (malformed messages; tools, and a template without
/// tool support), kCancelled (stopped).
Expected<ConversationPrompt> render(const ServedModel& served, const Conversation& conversation,
                                    const std::optional<Tools>& tools, const Thinking& thinking, bool structured,
                                    Ignored& ignored, const StopToken& stop = {});

/// The text of a message's content: a text, or a list of parts of type "text", "input_text" or "output_text".
/// `thoughts`: takes those of parts that are thoughts; null: there may be none. Errors: kUsage (images and other
/// parts).
Expected<std::string> content_text(const Json& content, const std::string& field, Ignored* ignored,
                                   std::string* thoughts = nullptr);

/// Appends thoughts to earlier ones.
void add_thoughts(std::string& thoughts, std::string_view more);

/// Removes the thoughts of all messages but the last `kept` that have some, and returns them.
std::vector<std::string> clear_thoughts(Json& messages, std::int64_t kept);

/// The ids of `context` (text, or token ids) or of `messages` (through the chat template). Errors: kUsage.
Expected<std::vector<std::int32_t>> read_context(const ServedModel& served, Fields& fields);

}  // namespace dllm::serve
