// POST /v1/chat/completions (OpenAI's API reference, "Create chat completion").
#include "base/try.h"
#include "engine/trace.h"
#include "serve/answer.h"
#include "serve/request_options.h"
#include "serve/tools.h"

namespace dllm::serve {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(const CallPtr& call, bool logs, bool usage, std::size_t choices, std::optional<Tools> tools)
      : call_(call), logs_(logs), usage_(usage), choices_(choices), tools_(std::move(tools)) {}

  Json whole(const std::vector<Generation>& answers) override {
    Json choices = Json::array();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const ToolAnswer parsed = parse_answer(answers[i].text, tools_);
      Json message = {{"role", "assistant"}, {"content", parsed.text}, {"refusal", nullptr}};
      if (!parsed.calls.empty()) {
        if (parsed.text.empty()) message["content"] = nullptr;
        message["tool_calls"] = calls_json(i, parsed, /*indices=*/false);
      }
      choices.push_back({{"index", i},
                         {"message", std::move(message)},
                         {"logprobs", logs(answers[i])},
                         {"finish_reason", finish(answers[i], parsed)}});
    }
    Json json = head("chat.completion");
    json["choices"] = std::move(choices);
    json["usage"] = usage_json(answers, choices_);
    json["dllm"] = all_facts(answers);
    return json;
  }

  std::string shown(const std::string& text, bool complete) override { return shown_text(text, complete, tools_); }
  std::string opening() override {
    std::string text;
    for (std::size_t i = 0; i < choices_; ++i) text += chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr);
    return text;
  }
  std::string text(std::size_t choice, std::string_view more) override {
    return chunk(choice, {{"content", more}}, nullptr);
  }
  std::string step(std::size_t choice, std::string_view canvas, const Json& facts) override {
    Json json = chunk_json(choice, canvas.empty() ? Json::object() : Json{{"content", canvas}}, nullptr);
    json["diffusion"] = facts;
    return sse(json);
  }
  std::string closing(std::size_t choice, const Generation& answer) override {
    const ToolAnswer parsed = parse_answer(answer.text, tools_);
    std::string text;
    if (!parsed.calls.empty()) text = chunk(choice, {{"tool_calls", calls_json(choice, parsed, true)}}, nullptr);
    Json json = chunk_json(choice, Json::object(), finish(answer, parsed));
    json["choices"][0]["logprobs"] = logs(answer);
    json["dllm"] = facts_json(answer);
    return text + sse(json);
  }
  std::string end(const std::vector<Generation>& answers) override {
    std::string text;
    if (usage_) {
      Json json = head("chat.completion.chunk");
      json["choices"] = Json::array();
      json["usage"] = usage_json(answers, choices_);
      text = sse(json);
    }
    return text + "data: [DONE]\n\n";
  }
  std::string error(const ApiError& error) override { return sse(error_json(error, Dialect::kOpenAi)); }

 private:
  static std::string finish(const Generation& answer, const ToolAnswer& parsed) {
    return parsed.calls.empty() ? std::string(finish_name(answer.finish)) : "tool_calls";
  }
  /// `indices`: include them, as streams do.
  Json calls_json(std::size_t choice, const ToolAnswer& parsed, bool indices) const {
    Json list = Json::array();
    for (const ToolCall& call : parsed.calls) {
      Json one = Json::object();
      if (indices) one["index"] = list.size();
      one["id"] = new_id("call_", *call_) + "-" + std::to_string(choice) + "-" + std::to_string(list.size());
      one["type"] = "function";
      one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
      list.push_back(std::move(one));
    }
    return list;
  }
  Json head(const char* object) const {
    return {{"id", new_id("chatcmpl-", *call_)},
            {"object", object},
            {"created", call_->created},
            {"model", call_->name()},
            {"system_fingerprint", "dllm"}};
  }
  Json chunk_json(std::size_t choice, Json delta, const Json& finish) const {
    Json json = head("chat.completion.chunk");
    json["choices"] = Json::array(
        {{{"index", choice}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", finish}}});
    if (usage_) json["usage"] = nullptr;
    return json;
  }
  std::string chunk(std::size_t choice, Json delta, const Json& finish) const {
    return sse(chunk_json(choice, std::move(delta), finish));
  }
  Json logs(const Generation& answer) const {
    if (!logs_) return nullptr;
    Json content = Json::array();
    for (const TokenLogProb& one : log_probs(call_->api.model, answer))
      content.push_back({{"token", one.text},
                         {"logprob", one.log_prob},
                         {"bytes", std::vector<std::uint8_t>(one.text.begin(), one.text.end())},
                         {"top_logprobs", Json::array()}});
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  static Json all_facts(const std::vector<Generation>& answers) {
    if (answers.size() == 1) return facts_json(answers.front());
    Json list = Json::array();
    for (const Generation& answer : answers) list.push_back(facts_json(answer));
    return list;
  }

  CallPtr call_;
  bool logs_, usage_;
  std::size_t choices_;
  std::optional<Tools> tools_;
};

}  // namespace

Expected<void> chat_completions(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(call->read_model(fields));
  const Json* list = fields.find("messages");
  if (list == nullptr) return wrong_type("messages", "given");
  DLLM_TRY(auto tools, read_tools(fields));
  DLLM_TRY(AnswerRequest request, read_stream_fields(fields));
  DLLM_TRY(const bool usage, read_usage_wish(fields, request.stream));
  DLLM_TRY(const bool logs, fields.flag("logprobs", false));
  DLLM_TRY(const auto top, fields.integer("top_logprobs", 0, 20));
  if (top.value_or(0) > 0)
    return Error{ErrorCode::kUsage, "only the chosen tokens' probabilities are known", "top_logprobs", "give 0"};
  DLLM_TRY(const auto choices, fields.integer("n", 1, kMostChoices));
  DLLM_TRY(const bool form, read_form(fields, call->api, request));
  if (form && tools) return Error{ErrorCode::kUsage, "an answer with a form calls no tools", "template", ""};
  DLLM_TRY(GenerateOptions asked, read_options(fields, call->api.model, call->api.options));
  DLLM_CHECK_OK(apply_tools(tools, asked));
  DLLM_TRY(const GenerateOptions options, for_form(std::move(asked), request, call->api));
  DLLM_TRY(const auto ids, conversation_ids(call->api, {.system = "", .messages = *list}, tools));
  add_choices(request, ids, options, static_cast<std::size_t>(choices.value_or(1)));
  const std::size_t count = request.prompts.size();
  return answer(call, std::move(request), std::make_unique<ChatFormat>(call, logs, usage, count, std::move(tools)));
}

}  // namespace dllm::serve
