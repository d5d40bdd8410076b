// POST /v1/responses (OpenAI's API reference, "Create a model response"), without state: nothing is stored.
#include <ctime>
#include <utility>

#include "base/try.h"
#include "serve/formats.h"
#include "serve/request_options.h"
#include "serve/tool_forms.h"

namespace dllm::serve {
namespace {

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(const CallPtr& call, ResponseFacts facts, std::optional<Tools> tools)
      : call_(call), facts_(std::move(facts)), tools_(std::move(tools)) {}

  Json whole(const std::vector<Generation>& answers) override { return done_json(answers.front()); }

  std::string shown(const std::string& text, bool complete) override { return shown_text(text, complete, tools_); }
  std::string opening() override {
    // Separate statements, because events are numbered in the order in which they are made.
    std::string text = event("response.created", {{"response", open_json()}});
    text += event("response.in_progress", {{"response", open_json()}});
    return text;
  }
  std::string text(std::size_t, std::string_view more) override {
    std::string text = open_message();
    text += event("response.output_text.delta", at({{"delta", more}, {"logprobs", Json::array()}}));
    return text;
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const ToolAnswer parsed = parse_answer(answer.text, tools_);
    std::string text = parsed.calls.empty() ? open_message() : "";
    if (message_open_) {
      const Json content = Json::array({part(parsed.text)});
      text += event("response.output_text.done", at({{"text", parsed.text}, {"logprobs", Json::array()}}));
      text += event("response.content_part.done", at({{"part", part(parsed.text)}}));
      text += event("response.output_item.done", {{"output_index", 0}, {"item", item(status(answer), content)}});
    }
    std::size_t index = message_open_ ? 1 : 0;
    for (const ToolCall& one : parsed.calls) text += call_events(index++, one);
    return text;
  }
  std::string end(const std::vector<Generation>& answers) override {
    const bool complete = answers.front().finish == FinishReason::kStop;
    return event(complete ? "response.completed" : "response.incomplete", {{"response", done_json(answers.front())}});
  }
  std::string error(const ApiError& error) override {
    return event("error", {{"code", error.code.empty() ? Json(nullptr) : Json(error.code)},
                           {"message", error.message},
                           {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}});
  }

 private:
  std::string event(std::string_view type, const Json& more) {
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(more);
    return sse(type, json);
  }
  /// The message begins with its first piece of text: an answer may consist of calls only.
  std::string open_message() {
    if (std::exchange(message_open_, true)) return "";
    std::string text =
        event("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", Json::array())}});
    text += event("response.content_part.added", at({{"part", part("")}}));
    return text;
  }
  std::string call_events(std::size_t index, const ToolCall& one) {
    Json begun = call_item(index, one);
    begun["arguments"] = "";
    begun["status"] = "in_progress";
    const Json place = {{"item_id", begun["id"]}, {"output_index", index}};
    const auto with = [&](Json more) {
      more.update(place);
      return more;
    };
    std::string text = event("response.output_item.added", {{"output_index", index}, {"item", begun}});
    text += event("response.function_call_arguments.delta", with({{"delta", one.arguments}}));
    text += event("response.function_call_arguments.done", with({{"name", one.name}, {"arguments", one.arguments}}));
    text += event("response.output_item.done", {{"output_index", index}, {"item", call_item(index, one)}});
    return text;
  }
  Json call_item(std::size_t index, const ToolCall& one) const {
    const std::string number = "-" + std::to_string(index);
    return {{"id", new_id("fc_", *call_) + number},        {"type", "function_call"}, {"status", "completed"},
            {"call_id", new_id("call_", *call_) + number}, {"name", one.name},        {"arguments", one.arguments}};
  }
  Json at(Json json) const {
    json["item_id"] = new_id("msg_", *call_);
    json["output_index"] = 0;
    json["content_index"] = 0;
    return json;
  }
  static const char* status(const Generation& answer) {
    return answer.finish == FinishReason::kStop ? "completed" : "incomplete";
  }
  static Json part(std::string_view text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }
  Json item(const char* status, Json content) const {
    return {{"id", new_id("msg_", *call_)},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }
  Json open_json() const {
    return {{"id", new_id("resp_", *call_)},
            {"object", "response"},
            {"created_at", std::time(nullptr)},
            {"status", "in_progress"},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", facts_.instructions},
            {"max_output_tokens", facts_.max_output_tokens},
            {"model", call_->name()},
            {"output", Json::array()},
            {"parallel_tool_calls", tools_ && tools_->parallel},
            {"previous_response_id", nullptr},
            {"reasoning", nullptr},
            {"store", false},
            {"temperature", facts_.temperature},
            {"text", facts_.text},
            {"tool_choice", facts_.tool_choice},
            {"tools", facts_.tools},
            {"top_p", facts_.top_p},
            {"truncation", "disabled"},
            {"usage", nullptr},
            {"metadata", facts_.metadata}};
  }
  Json done_json(const Generation& answer) const {
    Json json = open_json();
    json["status"] = status(answer);
    if (answer.finish != FinishReason::kStop) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    const ToolAnswer parsed = parse_answer(answer.text, tools_);
    if (!parsed.text.empty() || parsed.calls.empty())
      json["output"].push_back(item(status(answer), Json::array({part(parsed.text)})));
    for (const ToolCall& one : parsed.calls) json["output"].push_back(call_item(json["output"].size(), one));
    const GenerateStats& stats = answer.stats;
    json["usage"] = {{"input_tokens", stats.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", stats.cached_tokens}}},
                     {"output_tokens", stats.answer_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", stats.prompt_tokens + stats.answer_tokens}};
    json["dllm"] = facts_json(answer);
    return json;
  }

  CallPtr call_;
  ResponseFacts facts_;
  std::optional<Tools> tools_;
  int sequence_ = 0;
  bool message_open_ = false;
};

Expected<Conversation> read_input(Fields& fields, ResponseFacts& facts) {
  Conversation conversation{.system = "", .messages = Json::array(), .field = "input"};
  DLLM_TRY(const auto instructions, fields.text("instructions"));
  if (instructions && !instructions->empty()) {
    conversation.system = *instructions;
    facts.instructions = *instructions;
  }
  const Json* input = fields.find("input");
  if (input == nullptr) return wrong_type("input", "given");
  if (input->is_string()) {
    conversation.messages.push_back({{"role", "user"}, {"content", *input}});
    return conversation;
  }
  DLLM_TRY(conversation.messages, messages_from_response_items(*input, "input"));
  return conversation;
}

}  // namespace

std::unique_ptr<AnswerFormat> responses_format(const CallPtr& call, ResponseFacts facts, std::optional<Tools> tools) {
  return std::make_unique<ResponsesFormat>(call, std::move(facts), std::move(tools));
}

Expected<void> responses(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->read_model(fields));
  ResponseFacts facts;
  if (const Json* metadata = fields.find("metadata")) facts.metadata = *metadata;
  DLLM_TRY(const Conversation conversation, read_input(fields, facts));
  DLLM_TRY(auto tools, read_response_tools(fields));
  if (const auto list = call->body.find("tools"); tools && list != call->body.end()) facts.tools = *list;
  if (!tools) facts.tool_choice = "none";
  if (const auto choice = call->body.find("tool_choice"); tools && choice != call->body.end())
    facts.tool_choice = *choice;
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  DLLM_TRY(GenerateOptions options, read_options(fields, call->api.model, call->api.options));
  DLLM_CHECK_OK(apply_tools(tools, options));
  if (const auto length = call->body.find("max_output_tokens"); length != call->body.end())
    facts.max_output_tokens = *length;
  if (const auto text = call->body.find("text"); text != call->body.end() && text->is_object())
    facts.text.update(*text);
  facts.temperature = options.temperature.value_or(0);
  facts.top_p = options.top_p.value_or(1);
  DLLM_TRY(const auto ids, conversation_ids(call->api, conversation, tools));
  add_choices(request, ids, options, 1);
  return answer(call, std::move(request), responses_format(call, std::move(facts), std::move(tools)));
}

}  // namespace dllm::serve
