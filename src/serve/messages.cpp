// POST /v1/messages and /v1/messages/count_tokens (Anthropic's API reference, "Messages").
#include <utility>

#include "base/try.h"
#include "serve/context_edits.h"
#include "serve/formats.h"
#include "serve/request_options.h"
#include "serve/tool_forms.h"

namespace dllm::serve {
namespace {

class MessagesFormat final : public AnswerFormat {
 public:
  MessagesFormat(const CallPtr& call, MessageFacts facts, AnswerReader reader)
      : call_(call), facts_(std::move(facts)), reader_(std::move(reader)) {}

  Json whole(const std::vector<Generation>& answers) override {
    const Generation& answer = answers.front();
    const ParsedAnswer parsed = reader_.parse(answer.text);
    Json json = head(answer.stats.answer_tokens);
    if (!parsed.thoughts.empty())
      json["content"].push_back({{"type", "thinking"},
                                 {"thinking", reader_.thinking().sealed ? "" : parsed.thoughts},
                                 {"signature", signature(parsed.thoughts)}});
    if (!parsed.text.empty() || parsed.calls.empty())
      json["content"].push_back({{"type", "text"}, {"text", parsed.text}});
    for (const ToolCall& one : parsed.calls) {
      Json block = call_block(json["content"].size(), one);
      block["input"] = Json::parse(one.arguments);
      json["content"].push_back(std::move(block));
    }
    json["usage"] = usage(answer);
    if (!facts_.edits.is_null()) json["context_management"] = {{"applied_edits", facts_.edits}};
    json["stop_reason"] = stop_reason(answer, parsed);
    json["stop_sequence"] = stop_sequence(answer);
    json["dllm"] = facts_json(answer);
    return json;
  }
  ShownAnswer shown(const std::string& text, bool complete) override { return reader_.shown(text, complete); }
  std::string opening() override { return sse("message_start", {{"type", "message_start"}, {"message", head(0)}}); }
  std::string thought(std::size_t, std::string_view more) override {
    std::string text = open_block(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    thoughts_ += more;
    return reader_.thinking().sealed ? text : text + delta({{"type", "thinking_delta"}, {"thinking", more}});
  }
  std::string text(std::size_t, std::string_view more) override {
    std::string text = open_text();  // first: it may end another block
    text += delta({{"type", "text_delta"}, {"text", more}});
    return text;
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const ParsedAnswer parsed = reader_.parse(answer.text);
    std::string text;
    if (parsed.calls.empty()) text += open_text();
    for (const ToolCall& one : parsed.calls) {
      text += close_block();
      text += open_block(Block::kToolUse, call_block(index_, one));
      text += delta({{"type", "input_json_delta"}, {"partial_json", one.arguments}});
    }
    text += close_block();
    Json end = {{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason(answer, parsed)}, {"stop_sequence", stop_sequence(answer)}}},
                {"usage", usage(answer)}};
    if (!facts_.edits.is_null()) end["context_management"] = {{"applied_edits", facts_.edits}};
    return text + sse("message_delta", end);
  }
  std::string end(const std::vector<Generation>&) override { return sse("message_stop", {{"type", "message_stop"}}); }
  std::string error(const ApiError& error) override { return sse("error", error_json(error, Dialect::kAnthropic)); }
  std::string keep_alive() const override { return sse("ping", {{"type", "ping"}}); }

 private:
  /// Kept tokens of the prompt are counted separately from the others.
  Json usage(const Generation& answer) const {
    const GenerateStats& stats = answer.stats;
    Json json = {{"input_tokens", stats.prompt_tokens - stats.cached_tokens},
                 {"cache_read_input_tokens", stats.cached_tokens},
                 {"cache_creation_input_tokens", 0},
                 {"output_tokens", stats.answer_tokens}};
    if (reader_.thinks())
      json["output_tokens_details"] = {{"thinking_tokens", reader_.thought_tokens(call_->served().model, answer)}};
    return json;
  }
  Json head(std::int64_t output_tokens) const {
    return {{"id", new_id("msg_", *call_)},
            {"type", "message"},
            {"role", "assistant"},
            {"model", call_->name()},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", {{"input_tokens", facts_.prompt_tokens}, {"output_tokens", output_tokens}}}};
  }
  enum class Block { kNone, kThinking, kText, kToolUse };

  /// Whether thoughts are this server's is never checked. If they are not shown, they are in it, so that they come
  /// back.
  std::string signature(const std::string& thoughts) const {
    return sealed_thoughts(reader_.thinking().sealed ? thoughts : "");
  }
  /// A block begins with its first piece: an answer may consist of calls only.
  std::string open_block(Block block, const Json& begun) {
    if (block_ == block && block != Block::kToolUse) return "";
    std::string text = close_block();
    block_ = block;
    return text +
           sse("content_block_start", {{"type", "content_block_start"}, {"index", index_}, {"content_block", begun}});
  }
  std::string open_text() { return open_block(Block::kText, {{"type", "text"}, {"text", ""}}); }
  std::string close_block() {
    if (block_ == Block::kNone) return "";
    std::string text;
    if (block_ == Block::kThinking) text = delta({{"type", "signature_delta"}, {"signature", signature(thoughts_)}});
    block_ = Block::kNone;
    return text + sse("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }
  std::string delta(const Json& what) const {
    return sse("content_block_delta", {{"type", "content_block_delta"}, {"index", index_}, {"delta", what}});
  }
  Json call_block(std::size_t index, const ToolCall& one) const {
    return {{"type", "tool_use"},
            {"id", new_id("toolu_", *call_) + "-" + std::to_string(index)},
            {"name", one.name},
            {"input", Json::object()}};
  }
  static Json stop_reason(const Generation& answer, const ParsedAnswer& parsed) {
    if (!parsed.calls.empty()) return "tool_use";
    if (answer.finish != FinishReason::kStop) return "max_tokens";
    return answer.stop_text.empty() ? "end_turn" : "stop_sequence";
  }
  static Json stop_sequence(const Generation& answer) {
    return answer.stop_text.empty() ? Json(nullptr) : Json(answer.stop_text);
  }

  CallPtr call_;
  MessageFacts facts_;
  AnswerReader reader_;
  Block block_ = Block::kNone;
  std::size_t index_ = 0;  ///< of the open block, else of the next one
  std::string thoughts_;
};

/// A request without what says how it is answered.
struct MessagesRequest {
  PreparedConversation prompt;
  GenerateOptions options;
  MessageFacts facts;
};

/// Makes the edits, and says what they did.
Json applied(const ServedModel& served, const ContextEdits& edits, Json& messages) {
  Json list = Json::array();
  if (!edits.kept_thoughts) return list;
  const std::vector<std::string> cleared = clear_thoughts(messages, *edits.kept_thoughts);
  std::size_t tokens = 0;
  for (const std::string& thoughts : cleared)
    if (const auto ids = served.model.tokenize(thoughts, /*special=*/false)) tokens += ids->size();
  if (!cleared.empty())
    list.push_back({{"type", "clear_thinking_20251015"},
                    {"cleared_thinking_turns", cleared.size()},
                    {"cleared_input_tokens", tokens}});
  return list;
}

/// Reads all fields but those that only an answer has.
Expected<MessagesRequest> read_request(const CallPtr& call, Fields& fields) {
  const ServedModel& served = call->served();
  Conversation conversation;
  if (const Json* system = fields.find("system")) {
    DLLM_TRY(conversation.system, content_text(*system, "system", &call->ignored));
  }
  const Json* list = fields.find("messages");
  if (list == nullptr) return wrong_type("messages", "given");
  DLLM_TRY(auto tools, read_anthropic_tools(fields));
  DLLM_TRY(conversation.messages, messages_from_anthropic(*list, "messages", call->ignored));
  DLLM_TRY(const Thinking thinking, read_thinking(fields, served));
  DLLM_TRY(const ContextEdits edits, read_context_edits(fields));
  MessagesRequest request;
  if (edits.given) request.facts.edits = applied(served, edits, conversation.messages);
  DLLM_TRY(auto stops, fields.texts("stop_sequences", 16));
  if (call->body.contains("stop"))
    return Error{ErrorCode::kUsage, "there is no such field", "stop", "give stop_sequences"};
  DLLM_TRY(request.options, read_options(fields, served.model, served.options));
  if (!stops.empty()) request.options.stop = std::move(stops);
  DLLM_CHECK_OK(apply_tools(tools, request.options));
  DLLM_TRY(request.prompt, prepare(call, std::move(conversation), std::move(tools), thinking, request.options));
  request.facts.prompt_tokens = request.prompt.ids.size();
  DLLM_CHECK_OK(check_untriggered(edits, request.prompt.ids.size()));
  return request;
}

}  // namespace

std::unique_ptr<AnswerFormat> messages_format(const CallPtr& call, MessageFacts facts, AnswerReader reader) {
  return std::make_unique<MessagesFormat>(call, std::move(facts), std::move(reader));
}

Expected<void> messages(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  if (call->body.find("max_tokens") == call->body.end()) return wrong_type("max_tokens", "given");
  DLLM_CHECK_OK(read_shown(fields, call->served(), request));
  DLLM_TRY(MessagesRequest asked, read_request(call, fields));
  asked.prompt.reader.prepare(request, asked.options, call->body);
  request.images = asked.prompt.images;
  add_choices(request, asked.prompt.ids, asked.options, 1);
  return answer(call, std::move(request),
                messages_format(call, std::move(asked.facts), std::move(asked.prompt.reader)));
}

Expected<void> count_tokens(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(const MessagesRequest asked, read_request(call, fields));
  Json json = {{"input_tokens", asked.prompt.ids.size()}};
  if (!asked.facts.edits.is_null()) json["context_management"] = {{"original_input_tokens", asked.prompt.ids.size()}};
  call->reply(json);
  return {};
}

}  // namespace dllm::serve
