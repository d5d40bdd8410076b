// POST /v1/chat/completions (OpenAI's API reference, "Create chat completion").
#include "base/try.h"
#include "engine/trace.h"
#include "serve/answer_reader.h"
#include "serve/request_options.h"

namespace dllm::serve {
namespace {

struct ChatWishes {
  bool logs = false, usage = false;
  std::vector<std::int32_t> shown{};  ///< control tokens that have a text
};

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(const CallPtr& call, ChatWishes wishes, std::size_t choices, AnswerReader reader)
      : call_(call), wishes_(std::move(wishes)), choices_(choices), reader_(std::move(reader)) {}

  Json whole(const std::vector<Generation>& answers) override {
    Json choices = Json::array();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const ParsedAnswer parsed = reader_.parse(answers[i].text);
      Json message = {{"role", "assistant"}, {"content", parsed.text}, {"refusal", nullptr}};
      if (!parsed.thoughts.empty()) message.update(thoughts_json(parsed.thoughts));
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
    json["usage"] = usage(answers);
    json["dllm"] = all_facts(answers);
    return json;
  }

  ShownAnswer shown(const std::string& text, bool complete) override { return reader_.shown(text, complete); }
  std::string opening() override {
    std::string text;
    for (std::size_t i = 0; i < choices_; ++i) text += chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr);
    return text;
  }
  std::string thought(std::size_t choice, std::string_view more) override {
    return chunk(choice, thoughts_json(more), nullptr);
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
    const ParsedAnswer parsed = reader_.parse(answer.text);
    std::string text;
    if (!parsed.calls.empty()) text = chunk(choice, {{"tool_calls", calls_json(choice, parsed, true)}}, nullptr);
    Json json = chunk_json(choice, Json::object(), finish(answer, parsed));
    json["choices"][0]["logprobs"] = logs(answer);
    json["dllm"] = facts_json(answer);
    return text + sse(json);
  }
  std::string end(const std::vector<Generation>& answers) override {
    std::string text;
    if (wishes_.usage) {
      Json json = head("chat.completion.chunk");
      json["choices"] = Json::array();
      json["usage"] = usage(answers);
      text = sse(json);
    }
    return text + "data: [DONE]\n\n";
  }
  std::string error(const ApiError& error) override { return sse(error_json(error, Dialect::kOpenAi)); }

 private:
  /// Under the names of DeepSeek and llama.cpp, and of vLLM and OpenRouter.
  static Json thoughts_json(std::string_view thoughts) {
    return {{"reasoning_content", thoughts}, {"reasoning", thoughts}};
  }
  Json usage(const std::vector<Generation>& answers) const {
    Json json = usage_json(answers, choices_);
    if (!reader_.thinks()) return json;
    std::int64_t tokens = 0;
    for (const Generation& answer : answers) tokens += reader_.thought_tokens(call_->served().model, answer);
    json["completion_tokens_details"] = {{"reasoning_tokens", tokens}};
    return json;
  }
  static std::string finish(const Generation& answer, const ParsedAnswer& parsed) {
    return parsed.calls.empty() ? std::string(finish_name(answer.finish)) : "tool_calls";
  }
  /// `indices`: include them, as streams do.
  Json calls_json(std::size_t choice, const ParsedAnswer& parsed, bool indices) const {
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
    if (wishes_.usage) json["usage"] = nullptr;
    return json;
  }
  std::string chunk(std::size_t choice, Json delta, const Json& finish) const {
    return sse(chunk_json(choice, std::move(delta), finish));
  }
  Json logs(const Generation& answer) const {
    if (!wishes_.logs) return nullptr;
    return {{"content", log_probs_json(call_->served().model, answer, wishes_.shown)}, {"refusal", nullptr}};
  }
  static Json all_facts(const std::vector<Generation>& answers) {
    if (answers.size() == 1) return facts_json(answers.front());
    Json list = Json::array();
    for (const Generation& answer : answers) list.push_back(facts_json(answer));
    return list;
  }

  CallPtr call_;
  ChatWishes wishes_;
  std::size_t choices_;
  AnswerReader reader_;
};

}  // namespace

Expected<void> chat_completions(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  const Json* list = fields.find("messages");
  if (list == nullptr) return wrong_type("messages", "given");
  DLLM_TRY(auto tools, read_tools(fields));
  DLLM_TRY(AnswerRequest request, read_stream_fields(fields));
  ChatWishes wishes;
  DLLM_TRY(wishes.usage, read_usage_wish(fields, request.stream));
  DLLM_TRY(wishes.logs, fields.flag("logprobs", false));
  DLLM_CHECK_OK(read_top_logprobs(fields));
  DLLM_TRY(const auto choices, fields.integer("n", 1, kMostChoices));
  DLLM_TRY(const bool form, read_form(fields, call->served(), request));
  if (form && tools) return Error{ErrorCode::kUsage, "an answer with a form calls no tools", "template", ""};
  DLLM_TRY(const Thinking thinking, read_thinking(fields, call->served()));
  DLLM_CHECK_OK(read_shown(fields, call->served(), request));
  DLLM_TRY(GenerateOptions asked, read_options(fields, call->served().model, call->api.options));
  DLLM_CHECK_OK(apply_tools(tools, asked));
  DLLM_TRY(const GenerateOptions options, for_form(std::move(asked), request, call->served()));
  DLLM_TRY(PreparedConversation prepared,
           prepare(call, {.system = "", .messages = *list}, std::move(tools), thinking, options));
  prepared.reader.prepare(request, options, call->body);
  wishes.shown = request.shown;
  request.images = prepared.images;
  add_choices(request, prepared.ids, options, static_cast<std::size_t>(choices.value_or(1)));
  const std::size_t count = request.prompts.size();
  return answer(call, std::move(request),
                std::make_unique<ChatFormat>(call, std::move(wishes), count, std::move(prepared.reader)));
}

}  // namespace dllm::serve
