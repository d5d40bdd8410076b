// POST /v1/messages and /v1/messages/count_tokens (Anthropic's API reference, "Messages").
#include "base/try.h"
#include "serve/answer.h"
#include "serve/request_options.h"

namespace dllm::serve {
namespace {

class MessagesFormat final : public AnswerFormat {
 public:
  MessagesFormat(const CallPtr& call, std::size_t prompt_tokens) : call_(call), prompt_tokens_(prompt_tokens) {}

  Json whole(const std::vector<Generation>& answers) override {
    const Generation& answer = answers.front();
    Json json = head(answer.stats.answer_tokens);
    json["content"] = Json::array({{{"type", "text"}, {"text", answer.text}}});
    json["stop_reason"] = stop_reason(answer);
    json["stop_sequence"] = stop_sequence(answer);
    json["dllm"] = facts_json(answer);
    return json;
  }
  std::string opening() override {
    return sse("message_start", {{"type", "message_start"}, {"message", head(0)}}) +
           sse("content_block_start",
               {{"type", "content_block_start"}, {"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  std::string text(std::size_t, std::string_view more) override {
    return sse("content_block_delta",
               {{"type", "content_block_delta"}, {"index", 0}, {"delta", {{"type", "text_delta"}, {"text", more}}}});
  }
  std::string closing(std::size_t, const Generation& answer) override {
    return sse("content_block_stop", {{"type", "content_block_stop"}, {"index", 0}}) +
           sse("message_delta",
               {{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason(answer)}, {"stop_sequence", stop_sequence(answer)}}},
                {"usage", {{"output_tokens", answer.stats.answer_tokens}}}});
  }
  std::string end(const std::vector<Generation>&) override { return sse("message_stop", {{"type", "message_stop"}}); }
  std::string error(const ApiError& error) override { return sse("error", error_json(error, Dialect::kAnthropic)); }
  std::string keep_alive() const override { return sse("ping", {{"type", "ping"}}); }

 private:
  Json head(std::int64_t output_tokens) const {
    return {{"id", new_id("msg_", *call_)},
            {"type", "message"},
            {"role", "assistant"},
            {"model", call_->api.name()},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", {{"input_tokens", prompt_tokens_}, {"output_tokens", output_tokens}}}};
  }
  static Json stop_reason(const Generation& answer) {
    if (answer.finish != FinishReason::kStop) return "max_tokens";
    return answer.stop_text.empty() ? "end_turn" : "stop_sequence";
  }
  static Json stop_sequence(const Generation& answer) {
    return answer.stop_text.empty() ? Json(nullptr) : Json(answer.stop_text);
  }

  CallPtr call_;
  std::size_t prompt_tokens_;
};

/// `system` before `messages`.
Expected<std::vector<ChatTurn>> read_conversation(const Api& api, Fields& fields) {
  std::vector<ChatTurn> turns;
  if (const Json* system = fields.find("system")) {
    DLLM_TRY(std::string text, content_text(*system, "system"));
    DLLM_CHECK_OK(api.check_size(text.size(), "system"));
    if (!text.empty()) turns.push_back({"system", std::move(text)});
  }
  const Json* list = fields.find("messages");
  if (list == nullptr) return wrong_type("messages", "given");
  DLLM_TRY(std::vector<ChatTurn> said, read_turns(api, *list, "messages"));
  turns.insert(turns.end(), said.begin(), said.end());
  return turns;
}

}  // namespace

Expected<void> messages(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->api.check_model(fields));
  DLLM_TRY(const auto turns, read_conversation(call->api, fields));
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  if (call->body.find("max_tokens") == call->body.end()) return wrong_type("max_tokens", "given");
  DLLM_TRY(auto stops, fields.texts("stop_sequences", 16));
  if (call->body.contains("stop"))
    return Error{ErrorCode::kUsage, "there is no such field", "stop", "give stop_sequences"};
  DLLM_TRY(GenerateOptions options, read_options(fields, call->api.model, call->api.options));
  if (!stops.empty()) options.stop = std::move(stops);
  DLLM_TRY(const auto ids, template_ids(call->api, turns));
  add_choices(request, ids, options, 1);
  return answer(call, std::move(request), std::make_unique<MessagesFormat>(call, ids.size()));
}

Expected<void> count_tokens(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->api.check_model(fields));
  DLLM_TRY(const auto turns, read_conversation(call->api, fields));
  DLLM_TRY(const GenerateOptions unused, read_options(fields, call->api.model, call->api.options));
  DLLM_TRY(const auto ids, template_ids(call->api, turns));
  call->reply({{"input_tokens", ids.size()}});
  return {};
}

}  // namespace dllm::serve
