// POST /v1/responses (OpenAI's API reference, "Create a model response"), without state: nothing is stored.
#include <ctime>
#include <utility>

#include "base/try.h"
#include "serve/answer.h"
#include "serve/request_options.h"

namespace dllm::serve {
namespace {

struct ResponseFacts {
  Json instructions, max_output_tokens, temperature, top_p, metadata;
};

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(const CallPtr& call, ResponseFacts facts) : call_(call), facts_(std::move(facts)) {}

  Json whole(const std::vector<Generation>& answers) override { return done_json(answers.front()); }

  std::string opening() override {
    // Separate statements, because events are numbered in the order in which they are made.
    std::string text = event("response.created", {{"response", open_json()}});
    text += event("response.in_progress", {{"response", open_json()}});
    text += event("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", Json::array())}});
    text += event("response.content_part.added", at({{"part", part("")}}));
    return text;
  }
  std::string text(std::size_t, std::string_view more) override {
    return event("response.output_text.delta", at({{"delta", more}, {"logprobs", Json::array()}}));
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const Json content = Json::array({part(answer.text)});
    std::string text = event("response.output_text.done", at({{"text", answer.text}, {"logprobs", Json::array()}}));
    text += event("response.content_part.done", at({{"part", part(answer.text)}}));
    text += event("response.output_item.done", {{"output_index", 0}, {"item", item(status(answer), content)}});
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
            {"model", call_->api.name()},
            {"output", Json::array()},
            {"parallel_tool_calls", false},
            {"previous_response_id", nullptr},
            {"reasoning", nullptr},
            {"store", false},
            {"temperature", facts_.temperature},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "none"},
            {"tools", Json::array()},
            {"top_p", facts_.top_p},
            {"truncation", "disabled"},
            {"usage", nullptr},
            {"metadata", facts_.metadata}};
  }
  Json done_json(const Generation& answer) const {
    Json json = open_json();
    json["status"] = status(answer);
    if (answer.finish != FinishReason::kStop) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["output"] = Json::array({item(status(answer), Json::array({part(answer.text)}))});
    const GenerateStats& stats = answer.stats;
    json["usage"] = {{"input_tokens", stats.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", 0}}},
                     {"output_tokens", stats.answer_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", stats.prompt_tokens + stats.answer_tokens}};
    json["dllm"] = facts_json(answer);
    return json;
  }

  CallPtr call_;
  ResponseFacts facts_;
  int sequence_ = 0;
};

Expected<std::vector<ChatTurn>> read_input(const Api& api, Fields& fields, ResponseFacts& facts) {
  std::vector<ChatTurn> turns;
  DLLM_TRY(const auto instructions, fields.text("instructions"));
  if (instructions && !instructions->empty()) {
    DLLM_CHECK_OK(api.check_size(instructions->size(), "instructions"));
    turns.push_back({"system", *instructions});
    facts.instructions = *instructions;
  }
  const Json* input = fields.find("input");
  if (input == nullptr) return wrong_type("input", "given");
  if (input->is_string()) {
    turns.push_back({"user", input->get<std::string>()});
    DLLM_CHECK_OK(api.check_size(turns.back().content.size(), "input"));
    return turns;
  }
  DLLM_TRY(const auto said, read_turns(api, *input, "input"));
  turns.insert(turns.end(), said.begin(), said.end());
  return turns;
}

}  // namespace

Expected<void> responses(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->api.check_model(fields));
  ResponseFacts facts;
  if (const Json* metadata = fields.find("metadata")) facts.metadata = *metadata;
  DLLM_TRY(const auto turns, read_input(call->api, fields, facts));
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  DLLM_TRY(const GenerateOptions options, read_options(fields, call->api.model, call->api.options));
  if (const auto length = call->body.find("max_output_tokens"); length != call->body.end())
    facts.max_output_tokens = *length;
  facts.temperature = options.temperature.value_or(0);
  facts.top_p = options.top_p.value_or(1);
  DLLM_TRY(const auto ids, template_ids(call->api, turns));
  add_choices(request, ids, options, 1);
  return answer(call, std::move(request), std::make_unique<ResponsesFormat>(call, std::move(facts)));
}

}  // namespace dllm::serve
