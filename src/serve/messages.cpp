// POST /v1/messages and /v1/messages/count_tokens (Anthropic's API reference, "Messages").
#include "base/try.h"
#include "serve/formats.h"
#include "serve/request_options.h"
#include "serve/tool_forms.h"

namespace dllm::serve {
namespace {

class MessagesFormat final : public AnswerFormat {
 public:
  MessagesFormat(const CallPtr& call, std::size_t prompt_tokens, std::optional<Tools> tools)
      : call_(call), prompt_tokens_(prompt_tokens), tools_(std::move(tools)) {}

  Json whole(const std::vector<Generation>& answers) override {
    const Generation& answer = answers.front();
    const ToolAnswer parsed = parse_answer(answer.text, tools_);
    Json json = head(answer.stats.answer_tokens);
    if (!parsed.text.empty() || parsed.calls.empty())
      json["content"].push_back({{"type", "text"}, {"text", parsed.text}});
    for (const ToolCall& one : parsed.calls) {
      Json block = call_block(json["content"].size(), one);
      block["input"] = Json::parse(one.arguments);
      json["content"].push_back(std::move(block));
    }
    json["usage"] = usage(answer.stats);
    json["stop_reason"] = stop_reason(answer, parsed);
    json["stop_sequence"] = stop_sequence(answer);
    json["dllm"] = facts_json(answer);
    return json;
  }
  std::string shown(const std::string& text, bool complete) override { return shown_text(text, complete, tools_); }
  std::string opening() override { return sse("message_start", {{"type", "message_start"}, {"message", head(0)}}); }
  std::string text(std::size_t, std::string_view more) override {
    return open_text() + delta(0, {{"type", "text_delta"}, {"text", more}});
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const ToolAnswer parsed = parse_answer(answer.text, tools_);
    std::string text = parsed.calls.empty() ? open_text() : "";
    std::size_t index = text_open_ ? 1 : 0;
    if (text_open_) text += sse("content_block_stop", {{"type", "content_block_stop"}, {"index", 0}});
    for (const ToolCall& one : parsed.calls) {
      text += sse("content_block_start",
                  {{"type", "content_block_start"}, {"index", index}, {"content_block", call_block(index, one)}}) +
              delta(index, {{"type", "input_json_delta"}, {"partial_json", one.arguments}}) +
              sse("content_block_stop", {{"type", "content_block_stop"}, {"index", index}});
      ++index;
    }
    return text +
           sse("message_delta",
               {{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason(answer, parsed)}, {"stop_sequence", stop_sequence(answer)}}},
                {"usage", usage(answer.stats)}});
  }
  std::string end(const std::vector<Generation>&) override { return sse("message_stop", {{"type", "message_stop"}}); }
  std::string error(const ApiError& error) override { return sse("error", error_json(error, Dialect::kAnthropic)); }
  std::string keep_alive() const override { return sse("ping", {{"type", "ping"}}); }

 private:
  /// Kept tokens of the prompt are counted separately from the others.
  static Json usage(const GenerateStats& stats) {
    return {{"input_tokens", stats.prompt_tokens - stats.cached_tokens},
            {"cache_read_input_tokens", stats.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"output_tokens", stats.answer_tokens}};
  }
  Json head(std::int64_t output_tokens) const {
    return {{"id", new_id("msg_", *call_)},
            {"type", "message"},
            {"role", "assistant"},
            {"model", call_->name()},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", {{"input_tokens", prompt_tokens_}, {"output_tokens", output_tokens}}}};
  }
  /// The text's block begins with its first piece: an answer may consist of calls only.
  std::string open_text() {
    if (std::exchange(text_open_, true)) return "";
    return sse("content_block_start",
               {{"type", "content_block_start"}, {"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  static std::string delta(std::size_t index, const Json& what) {
    return sse("content_block_delta", {{"type", "content_block_delta"}, {"index", index}, {"delta", what}});
  }
  Json call_block(std::size_t index, const ToolCall& one) const {
    return {{"type", "tool_use"},
            {"id", new_id("toolu_", *call_) + "-" + std::to_string(index)},
            {"name", one.name},
            {"input", Json::object()}};
  }
  static Json stop_reason(const Generation& answer, const ToolAnswer& parsed) {
    if (!parsed.calls.empty()) return "tool_use";
    if (answer.finish != FinishReason::kStop) return "max_tokens";
    return answer.stop_text.empty() ? "end_turn" : "stop_sequence";
  }
  static Json stop_sequence(const Generation& answer) {
    return answer.stop_text.empty() ? Json(nullptr) : Json(answer.stop_text);
  }

  CallPtr call_;
  std::size_t prompt_tokens_;
  std::optional<Tools> tools_;
  bool text_open_ = false;
};

struct MessagesPrompt {
  std::vector<std::int32_t> ids;
  std::optional<Tools> tools;
};

/// `system`, `messages` and `tools`.
Expected<MessagesPrompt> read_prompt(const Api& api, Fields& fields) {
  Conversation conversation;
  if (const Json* system = fields.find("system")) {
    DLLM_TRY(conversation.system, content_text(*system, "system"));
  }
  const Json* list = fields.find("messages");
  if (list == nullptr) return wrong_type("messages", "given");
  MessagesPrompt prompt;
  DLLM_TRY(prompt.tools, read_anthropic_tools(fields));
  DLLM_TRY(conversation.messages, messages_from_anthropic(*list, "messages"));
  DLLM_TRY(prompt.ids, conversation_ids(api, conversation, prompt.tools));
  return prompt;
}

}  // namespace

std::unique_ptr<AnswerFormat> messages_format(const CallPtr& call, std::size_t prompt_tokens,
                                              std::optional<Tools> tools) {
  return std::make_unique<MessagesFormat>(call, prompt_tokens, std::move(tools));
}

Expected<void> messages(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(MessagesPrompt prompt, read_prompt(call->api, fields));
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  if (call->body.find("max_tokens") == call->body.end()) return wrong_type("max_tokens", "given");
  DLLM_TRY(auto stops, fields.texts("stop_sequences", 16));
  if (call->body.contains("stop"))
    return Error{ErrorCode::kUsage, "there is no such field", "stop", "give stop_sequences"};
  DLLM_TRY(GenerateOptions options, read_options(fields, call->api.model, call->api.options));
  DLLM_CHECK_OK(apply_tools(prompt.tools, options));
  if (!stops.empty()) options.stop = std::move(stops);
  add_choices(request, prompt.ids, options, 1);
  return answer(call, std::move(request), messages_format(call, prompt.ids.size(), std::move(prompt.tools)));
}

Expected<void> count_tokens(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(const MessagesPrompt prompt, read_prompt(call->api, fields));
  DLLM_TRY(const GenerateOptions unused, read_options(fields, call->api.model, call->api.options));
  call->reply({{"input_tokens", prompt.ids.size()}});
  return {};
}

}  // namespace dllm::serve
