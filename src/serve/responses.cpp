// POST /v1/responses (OpenAI's API reference, "Create a model response"), without state: nothing is stored.
#include <utility>

#include "base/try.h"
#include "serve/formats.h"
#include "serve/request_options.h"
#include "serve/tool_forms.h"

namespace dllm::serve {
namespace {

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(const CallPtr& call, ResponseFacts facts, AnswerReader reader)
      : call_(call), facts_(std::move(facts)), reader_(std::move(reader)) {}

  Json whole(const std::vector<Generation>& answers) override { return done_json(answers.front()); }

  ShownAnswer shown(const std::string& text, bool complete) override { return reader_.shown(text, complete); }
  std::string opening() override {
    // Separate statements, because events are numbered in the order in which they are made.
    std::string text = event("response.created", {{"response", open_json()}});
    text += event("response.in_progress", {{"response", open_json()}});
    return text;
  }
  std::string thought(std::size_t, std::string_view more) override {
    std::string text = open_thoughts();
    thoughts_ += more;
    text += event("response.reasoning_text.delta", at_thoughts({{"delta", more}}));
    return text;
  }
  std::string text(std::size_t, std::string_view more) override {
    std::string text = open_message();
    text += event("response.output_text.delta", at({{"delta", more}, {"logprobs", Json::array()}}));
    return text;
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const ParsedAnswer parsed = reader_.parse(answer.text);
    std::string text;
    if (parsed.calls.empty() && needs_message(parsed)) text += open_message();
    text += close_thoughts();
    if (message_open_) {
      const Json content = Json::array({part(parsed.text)});
      text += event("response.output_text.done", at({{"text", parsed.text}, {"logprobs", Json::array()}}));
      text += event("response.content_part.done", at({{"part", part(parsed.text)}}));
      text += event("response.output_item.done",
                    {{"output_index", message_index()}, {"item", item(status(answer), content)}});
    }
    std::size_t index = message_index() + (message_open_ ? 1 : 0);
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
  /// An answer that was cut may consist of thoughts only.
  static bool needs_message(const ParsedAnswer& parsed) { return !parsed.text.empty() || parsed.thoughts.empty(); }
  std::string open_thoughts() {
    if (std::exchange(thoughts_open_, true)) return "";
    thoughts_first_ = true;
    std::string text = event("response.output_item.added",
                             {{"output_index", 0}, {"item", thoughts_item("in_progress", Json::array())}});
    text += event("response.content_part.added", at_thoughts({{"part", thoughts_part("")}}));
    return text;
  }
  std::string close_thoughts() {
    if (!std::exchange(thoughts_open_, false)) return "";
    std::string text = event("response.reasoning_text.done", at_thoughts({{"text", thoughts_}}));
    text += event("response.content_part.done", at_thoughts({{"part", thoughts_part(thoughts_)}}));
    text += event("response.output_item.done", {{"output_index", 0}, {"item", done_thoughts(thoughts_)}});
    return text;
  }
  static Json thoughts_part(std::string_view text) { return {{"type", "reasoning_text"}, {"text", text}}; }
  Json at_thoughts(Json json) const {
    json["item_id"] = new_id("rs_", *call_);
    json["output_index"] = 0;
    json["content_index"] = 0;
    return json;
  }
  Json thoughts_item(const char* status, Json content) const {
    return {{"id", new_id("rs_", *call_)},
            {"type", "reasoning"},
            {"status", status},
            {"summary", Json::array()},
            {"content", std::move(content)}};
  }
  Json done_thoughts(const std::string& thoughts) const {
    Json json = thoughts_item("completed", Json::array({thoughts_part(thoughts)}));
    if (reader_.thinking().encrypted) json["encrypted_content"] = sealed_thoughts(thoughts);
    return json;
  }
  std::size_t message_index() const { return thoughts_first_ ? 1 : 0; }

  /// The message begins with its first piece of text: an answer may consist of calls only.
  std::string open_message() {
    if (message_open_) return "";
    std::string text = close_thoughts();
    message_open_ = true;
    text += event("response.output_item.added",
                  {{"output_index", message_index()}, {"item", item("in_progress", Json::array())}});
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
    json["output_index"] = message_index();
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
            {"created_at", call_->created},
            {"status", "in_progress"},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", facts_.instructions},
            {"max_output_tokens", facts_.max_output_tokens},
            {"model", call_->name()},
            {"output", Json::array()},
            {"parallel_tool_calls", reader_.tools() && reader_.tools()->parallel},
            {"previous_response_id", nullptr},
            {"reasoning", facts_.reasoning},
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
    const ParsedAnswer parsed = reader_.parse(answer.text);
    if (!parsed.thoughts.empty()) json["output"].push_back(done_thoughts(parsed.thoughts));
    if (!parsed.text.empty() || (parsed.calls.empty() && needs_message(parsed)))
      json["output"].push_back(item(status(answer), Json::array({part(parsed.text)})));
    for (const ToolCall& one : parsed.calls) json["output"].push_back(call_item(json["output"].size(), one));
    const GenerateStats& stats = answer.stats;
    json["usage"] = {
        {"input_tokens", stats.prompt_tokens},
        {"input_tokens_details", {{"cached_tokens", stats.cached_tokens}}},
        {"output_tokens", stats.answer_tokens},
        {"output_tokens_details", {{"reasoning_tokens", reader_.thought_tokens(call_->served().model, answer)}}},
        {"total_tokens", stats.prompt_tokens + stats.answer_tokens}};
    json["dllm"] = facts_json(answer);
    return json;
  }

  CallPtr call_;
  ResponseFacts facts_;
  AnswerReader reader_;
  int sequence_ = 0;
  bool message_open_ = false, thoughts_open_ = false;
  bool thoughts_first_ = false;  ///< the first item is thoughts
  std::string thoughts_;
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
  DLLM_TRY(conversation.messages, messages_from_response_items(*input, "input", *fields.ignored()));
  return conversation;
}

/// `context_management`: a compaction that no prompt here is long enough for asks for nothing.
Expected<void> read_compaction(Fields& fields, const ServedModel& served) {
  const Json* list = fields.find("context_management");
  if (list == nullptr) return {};
  if (!list->is_array()) return wrong_type("context_management", "a list");
  for (const Json& one : *list) {
    const Json type = one.is_object() ? one.value("type", Json()) : Json();
    const Json threshold = one.is_object() ? one.value("compact_threshold", Json()) : Json();
    if (type != "compaction" || !threshold.is_number_unsigned())
      return wrong_type("context_management", "a list of {\"type\": \"compaction\", \"compact_threshold\": N}");
    if (threshold.get<std::uint64_t>() < static_cast<std::uint64_t>(served.model.context_length()))
      return Error{ErrorCode::kUsage, "conversations are not compacted here", "context_management",
                   "leave it out, or give a threshold above the model's context"};
  }
  if (!list->empty()) fields.ignore("context_management");
  return {};
}

/// `include`: whether thoughts are wanted as a text that only this server reads. The rest of what may be asked for is
/// about items that there are never here, or changes no word.
Expected<bool> read_include(Fields& fields) {
  const Json* list = fields.find("include");
  if (list == nullptr) return false;
  if (!list->is_array()) return wrong_type("include", "a list of names");
  bool encrypted = false;
  for (const Json& name : *list) {
    if (!name.is_string()) return wrong_type("include", "a list of names");
    if (name == "reasoning.encrypted_content")
      encrypted = true;
    else
      fields.ignored()->add("include." + name.get<std::string>());
  }
  return encrypted;
}

}  // namespace

std::unique_ptr<AnswerFormat> responses_format(const CallPtr& call, ResponseFacts facts, AnswerReader reader) {
  return std::make_unique<ResponsesFormat>(call, std::move(facts), std::move(reader));
}

Expected<void> responses(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  ResponseFacts facts;
  if (const Json* metadata = fields.find("metadata")) facts.metadata = *metadata;
  DLLM_TRY(Conversation conversation, read_input(fields, facts));
  DLLM_TRY(auto tools, read_response_tools(fields));
  if (const auto list = call->body.find("tools"); tools && list != call->body.end()) facts.tools = *list;
  if (!tools) facts.tool_choice = "none";
  if (const auto choice = call->body.find("tool_choice"); tools && choice != call->body.end())
    facts.tool_choice = *choice;
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  DLLM_TRY(const bool usage, read_usage_wish(fields, request.stream));
  (void)usage;  // the last event has it anyway
  DLLM_CHECK_OK(read_top_logprobs(fields));
  DLLM_CHECK_OK(read_shown(fields, call->served(), request));
  DLLM_TRY(Thinking thinking, read_thinking(fields, call->served()));
  DLLM_TRY(thinking.encrypted, read_include(fields));
  DLLM_CHECK_OK(read_compaction(fields, call->served()));
  if (const auto reasoning = call->body.find("reasoning"); reasoning != call->body.end()) facts.reasoning = *reasoning;
  DLLM_TRY(GenerateOptions options, read_options(fields, call->served().model, call->api.options));
  DLLM_CHECK_OK(apply_tools(tools, options));
  if (const auto length = call->body.find("max_output_tokens"); length != call->body.end())
    facts.max_output_tokens = *length;
  if (const auto text = call->body.find("text"); text != call->body.end() && text->is_object())
    facts.text.update(*text);
  facts.temperature = options.temperature.value_or(0);
  facts.top_p = options.top_p.value_or(1);
  DLLM_TRY(PreparedConversation prepared, prepare(call, std::move(conversation), std::move(tools), thinking, options));
  prepared.reader.prepare(request, options, call->body);
  request.images = prepared.images;
  add_choices(request, prepared.ids, options, 1);
  return answer(call, std::move(request), responses_format(call, std::move(facts), std::move(prepared.reader)));
}

}  // namespace dllm::serve
