// POST /api/chat and /api/generate (Ollama's API, docs/api.md of its repository).
#include "serve/ollama.h"

#include <chrono>
#include <utility>

#include "base/try.h"
#include "base/utc.h"
#include "serve/request_options.h"

namespace dllm::serve {
namespace {

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

class OllamaFormat final : public AnswerFormat {
 public:
  OllamaFormat(const CallPtr& call, bool chat, std::optional<Tools> tools)
      : call_(call), chat_(chat), tools_(std::move(tools)) {}

  Json whole(const std::vector<Generation>& answers) override {
    const ToolAnswer parsed = parse_answer(answers.front().text, tools_);
    return last(answers.front(), parsed.text, parsed);
  }
  std::string shown(const std::string& text, bool complete) override { return shown_text(text, complete, tools_); }
  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string text(std::size_t, std::string_view more) override { return line(part(more, nullptr)); }
  std::string step(std::size_t, std::string_view canvas, const Json& facts) override {
    Json json = part(canvas, nullptr);
    json["diffusion"] = facts;
    return line(json);
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const ToolAnswer parsed = parse_answer(answer.text, tools_);
    const std::string calls = parsed.calls.empty() ? "" : line(part("", &parsed));
    return calls + line(last(answer, "", {}));
  }
  std::string end(const std::vector<Generation>&) override { return ""; }
  std::string error(const ApiError& error) override { return line(error_json(error, Dialect::kOllama)); }
  // Clients parse every line, so an idle stream sends none.
  std::string keep_alive() const override { return ""; }

 private:
  static std::string line(const Json& json) { return dump(json) + "\n"; }
  /// `calls`: null or an answer with some.
  Json part(std::string_view text, const ToolAnswer* calls) const {
    Json json = {{"model", call_->name()}, {"created_at", utc_text(std::chrono::system_clock::now())}};
    if (!chat_) {
      json["response"] = text;
    } else {
      json["message"] = {{"role", "assistant"}, {"content", text}};
      if (calls != nullptr) json["message"]["tool_calls"] = calls_json(*calls);
    }
    json["done"] = false;
    return json;
  }
  static Json calls_json(const ToolAnswer& parsed) {
    Json list = Json::array();
    for (const ToolCall& one : parsed.calls)
      list.push_back(
          {{"function", {{"index", list.size()}, {"name", one.name}, {"arguments", Json::parse(one.arguments)}}}});
    return list;
  }
  /// Every pass computes prompt and answer together, so all time is the answer's.
  Json last(const Generation& answer, std::string_view text, const ToolAnswer& parsed) const {
    Json json = part(text, parsed.calls.empty() ? nullptr : &parsed);
    json["done"] = true;
    json["done_reason"] = answer.finish == FinishReason::kStop ? "stop" : "length";
    json["total_duration"] = nanoseconds(call_->seconds());
    json["load_duration"] = 0;
    json["prompt_eval_count"] = answer.stats.prompt_tokens;
    json["prompt_eval_duration"] = 0;
    json["eval_count"] = answer.stats.answer_tokens;
    json["eval_duration"] = nanoseconds(answer.stats.seconds);
    json["dllm"] = facts_json(answer);
    return json;
  }

  CallPtr call_;
  bool chat_;
  std::optional<Tools> tools_;
};

/// A request without words: clients send it to load a model, or to unload it (`keep_alive: 0`).
void reply_loaded(const CallPtr& call, bool chat) {
  const Json alive = call->body.value("keep_alive", Json());
  Json json = {{"model", call->name()}, {"created_at", utc_text(std::chrono::system_clock::now())}};
  if (chat)
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  else
    json["response"] = "";
  json["done"] = true;
  json["done_reason"] = alive == 0 || alive == "0" ? "unload" : "load";
  call->reply(json);
}

/// What both routes read: how the answer is sent, and the options. `asked`: from_ollama().
Expected<GenerateOptions> read_common(const CallPtr& call, Fields& asked, AnswerRequest& request) {
  DLLM_TRY(request.stream, asked.flag("stream", true));
  DLLM_TRY(request.diffusing, asked.flag("diffusing", false));
  DLLM_TRY(request.events, asked.flag("diffusion_events", false));
  return read_options(asked, call->api.model, call->api.options);
}

Expected<void> chat(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  const Json* list = fields.find("messages");
  if (list == nullptr || list->empty()) return reply_loaded(call, /*chat=*/true), Expected<void>();
  DLLM_TRY(const Json messages, messages_from_ollama(*list));
  DLLM_TRY(const Json asked, from_ollama(fields));
  Fields ours(asked);
  DLLM_TRY(auto tools, read_tools(ours));
  AnswerRequest request;
  DLLM_TRY(GenerateOptions options, read_common(call, ours, request));
  DLLM_CHECK_OK(apply_tools(tools, options));
  DLLM_TRY(const auto ids, conversation_ids(call->api, {.system = "", .messages = messages}, tools));
  add_choices(request, ids, options, 1);
  return answer(call, std::move(request), ollama_format(call, /*chat=*/true, std::move(tools)));
}

/// The prompt of /api/generate: raw, before a suffix, or a user's message.
Expected<std::vector<std::int32_t>> prompt_ids(const CallPtr& call, Fields& fields, AnswerRequest& request) {
  const Api& api = call->api;
  DLLM_TRY(const auto prompt, fields.text("prompt"));
  DLLM_TRY(const auto suffix, fields.text("suffix"));
  DLLM_TRY(const auto system, fields.text("system"));
  DLLM_TRY(const bool raw, fields.flag("raw", false));
  for (const char* key : {"images", "context", "template"})
    if (const Json* value = fields.find(key); value != nullptr && !value->empty() && *value != "")
      return Error{ErrorCode::kUsage, "it is not supported, and would change the answer", key, "leave it out"};
  const bool between = suffix && !suffix->empty();
  if ((raw || between) && system && !system->empty())
    return Error{ErrorCode::kUsage, "a raw prompt has no system message", "system", "put it into the prompt"};
  DLLM_CHECK_OK(api.check_size(prompt.value_or("").size(), "prompt"));
  DLLM_CHECK_OK(api.check_size(suffix.value_or("").size(), "suffix"));
  if (between) {
    DLLM_TRY(request.suffix, api.model.tokenize(*suffix, /*special=*/false));
  }
  if (raw || between) return api.model.prompt_ids(prompt.value_or(""), /*special=*/raw);
  const Json messages = Json::array({{{"role", "user"}, {"content", prompt.value_or("")}}});
  return conversation_ids(api, {.system = system.value_or(""), .messages = messages, .field = "prompt"}, std::nullopt);
}

Expected<void> generate(const CallPtr& call) {
  Fields fields(call->body);
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  const Json prompt = call->body.value("prompt", Json());
  if ((prompt.is_null() || prompt == "") && !call->body.contains("suffix"))
    return reply_loaded(call, /*chat=*/false), Expected<void>();
  AnswerRequest request;
  DLLM_TRY(const auto ids, prompt_ids(call, fields, request));
  DLLM_TRY(const Json asked, from_ollama(fields));
  Fields ours(asked);
  DLLM_TRY(const GenerateOptions options, read_common(call, ours, request));
  add_choices(request, ids, options, 1);
  return answer(call, std::move(request), ollama_format(call, /*chat=*/false, std::nullopt));
}

Expected<void> told_in_their_fields(Expected<void> done) {
  if (done) return done;
  return in_ollama_fields(std::move(done).error());
}

}  // namespace

std::unique_ptr<AnswerFormat> ollama_format(const CallPtr& call, bool chat, std::optional<Tools> tools) {
  return std::make_unique<OllamaFormat>(call, chat, std::move(tools));
}

Expected<void> ollama_chat(const CallPtr& call) { return told_in_their_fields(chat(call)); }
Expected<void> ollama_generate(const CallPtr& call) { return told_in_their_fields(generate(call)); }

}  // namespace dllm::serve
