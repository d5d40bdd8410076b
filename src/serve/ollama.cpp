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
  OllamaFormat(const CallPtr& call, bool chat, AnswerReader reader, OllamaLogs logs)
      : call_(call), chat_(chat), reader_(std::move(reader)), logs_(std::move(logs)) {}

  Json whole(const std::vector<Generation>& answers) override {
    const ParsedAnswer parsed = reader_.parse(answers.front().text);
    return last(answers.front(), parsed);
  }
  ShownAnswer shown(const std::string& text, bool complete) override { return reader_.shown(text, complete); }
  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string thought(std::size_t, std::string_view more) override { return line(part("", more)); }
  std::string text(std::size_t, std::string_view more) override { return line(part(more)); }
  std::string step(std::size_t, std::string_view canvas, const Json& facts) override {
    Json json = part(canvas);
    json["diffusion"] = facts;
    return line(json);
  }
  std::string closing(std::size_t, const Generation& answer) override {
    const ParsedAnswer parsed = reader_.parse(answer.text);
    const std::string calls = parsed.calls.empty() ? "" : line(part("", "", parsed.calls));
    return calls + line(last(answer, {}));
  }
  std::string end(const std::vector<Generation>&) override { return ""; }
  std::string error(const ApiError& error) override { return line(error_json(error, Dialect::kOllama)); }
  // Clients parse every line, so an idle stream sends none.
  std::string keep_alive() const override { return ""; }

 private:
  static std::string line(const Json& json) { return dump(json) + "\n"; }
  Json part(std::string_view text, std::string_view thoughts = "", const std::vector<ToolCall>& calls = {}) const {
    Json json = {{"model", call_->name()}, {"created_at", utc_text(std::chrono::system_clock::now())}};
    if (chat_) json["message"] = {{"role", "assistant"}, {"content", text}};
    if (!chat_) json["response"] = text;
    Json& holder = chat_ ? json["message"] : json;
    if (!thoughts.empty()) holder["thinking"] = thoughts;
    if (!calls.empty()) holder["tool_calls"] = calls_json(calls);
    json["done"] = false;
    return json;
  }
  static Json calls_json(const std::vector<ToolCall>& calls) {
    Json list = Json::array();
    for (const ToolCall& one : calls)
      list.push_back(
          {{"function", {{"index", list.size()}, {"name", one.name}, {"arguments", Json::parse(one.arguments)}}}});
    return list;
  }
  /// Every pass computes prompt and answer together, so all time is the answer's.
  Json last(const Generation& answer, const ParsedAnswer& parsed) const {
    Json json = part(parsed.text, parsed.thoughts, parsed.calls);
    json["done"] = true;
    json["done_reason"] = answer.finish == FinishReason::kStop ? "stop" : "length";
    json["total_duration"] = nanoseconds(call_->seconds());
    json["load_duration"] = 0;
    json["prompt_eval_count"] = answer.stats.prompt_tokens;
    json["prompt_eval_duration"] = 0;
    json["eval_count"] = answer.stats.answer_tokens;
    json["eval_duration"] = nanoseconds(answer.stats.seconds);
    if (logs_.wanted) json["logprobs"] = log_probs_json(call_->served().model, answer, logs_.shown);
    json["dllm"] = facts_json(answer);
    return json;
  }

  CallPtr call_;
  bool chat_;
  AnswerReader reader_;
  OllamaLogs logs_;
};

/// Answers a request without words: clients send it to load a model, or to unload it (`keep_alive: 0`).
void reply_state(const CallPtr& call, const std::string& name, const char* reason) {
  Json json = {{"model", name}, {"created_at", utc_text(std::chrono::system_clock::now())}};
  if (call->route == "/api/chat")
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  else
    json["response"] = "";
  json["done"] = true;
  json["done_reason"] = reason;
  call->reply(json);
}

void reply_loaded(const CallPtr& call) {
  const Json alive = call->body.value("keep_alive", Json());
  reply_state(call, call->name(), alive == 0 || alive == "0" ? "unload" : "load");
}

struct OllamaWishes {
  Thinking thinking;
  GenerateOptions options;
  OllamaLogs logs;
};

/// What both routes read: how the answer is sent, and the options. `asked`: from_ollama().
Expected<OllamaWishes> read_common(const CallPtr& call, Fields& asked, AnswerRequest& request) {
  DLLM_TRY(request.stream, asked.flag("stream", true));
  DLLM_TRY(request.diffusing, asked.flag("diffusing", false));
  DLLM_TRY(request.events, asked.flag("diffusion_events", false));
  DLLM_CHECK_OK(read_shown(asked, call->served(), request));
  OllamaWishes wishes;
  DLLM_TRY(wishes.logs.wanted, asked.flag("logprobs", false));
  wishes.logs.shown = request.shown;
  DLLM_CHECK_OK(read_top_logprobs(asked));
  DLLM_TRY(wishes.thinking, read_thinking(asked, call->served()));
  DLLM_TRY(wishes.options, read_options(asked, call->served().model, call->api.options));
  return wishes;
}

Expected<void> chat(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  const Json* list = fields.find("messages");
  if (list == nullptr || list->empty()) return reply_loaded(call), Expected<void>();
  DLLM_TRY(const Json messages, messages_from_ollama(*list));
  DLLM_TRY(const Json asked, from_ollama(fields));
  Fields ours(asked, &call->ignored);
  DLLM_TRY(auto tools, read_tools(ours));
  AnswerRequest request;
  DLLM_TRY(OllamaWishes wishes, read_common(call, ours, request));
  DLLM_CHECK_OK(apply_tools(tools, wishes.options));
  DLLM_TRY(PreparedConversation prepared,
           prepare(call, {.system = "", .messages = messages}, std::move(tools), wishes.thinking, wishes.options));
  prepared.reader.prepare(request, wishes.options, asked);
  request.images = prepared.images;
  add_choices(request, prepared.ids, wishes.options, 1);
  return answer(call, std::move(request),
                ollama_format(call, /*chat=*/true, std::move(prepared.reader), std::move(wishes.logs)));
}

/// The words of /api/generate: raw, before a suffix, or a user's message.
struct OllamaPrompt {
  std::string prompt, system;
  std::optional<std::string> suffix;
  Json images = Json::array();
  bool raw = false;  ///< without the chat template
};

Expected<OllamaPrompt> read_prompt(const ServedModel& served, Fields& fields) {
  OllamaPrompt read;
  DLLM_TRY(const auto prompt, fields.text("prompt"));
  DLLM_TRY(const auto suffix, fields.text("suffix"));
  DLLM_TRY(const auto system, fields.text("system"));
  DLLM_TRY(const bool raw, fields.flag("raw", false));
  if (const Json* images = fields.find("images"); images != nullptr && !images->is_null()) read.images = *images;
  for (const char* key : {"context", "template"})
    if (const Json* value = fields.find(key); value != nullptr && !value->empty() && *value != "")
      return Error{ErrorCode::kUsage, "it is not supported, and would change the answer", key, "leave it out"};
  if (suffix && !suffix->empty()) read.suffix = suffix;
  read.raw = raw;
  read.prompt = prompt.value_or("");
  read.system = system.value_or("");
  if ((raw || read.suffix) && !read.system.empty())
    return Error{ErrorCode::kUsage, "a raw prompt has no system message", "system", "put it into the prompt"};
  DLLM_CHECK_OK(served.check_size(read.prompt.size(), "prompt"));
  DLLM_CHECK_OK(served.check_size(read.suffix.value_or("").size(), "suffix"));
  return read;
}

Expected<PreparedConversation> generate_prompt(const CallPtr& call, const OllamaPrompt& words,
                                               const OllamaWishes& wishes) {
  if (words.raw || words.suffix) {
    if (!words.images.empty())
      return Error{ErrorCode::kUsage, "a raw prompt has no places for images", "images", "leave out raw and suffix"};
    PreparedConversation prepared;
    DLLM_TRY(prepared.ids, call->served().model.prompt_ids(words.prompt, /*special=*/words.raw));
    return prepared;
  }
  Json message = {{"role", "user"}, {"content", words.prompt}};
  if (!words.images.empty()) {
    DLLM_TRY(message["content"], content_with_images(message, words.images, "images"));
  }
  const Json messages = Json::array({message});
  return prepare(call, {.system = words.system, .messages = messages, .field = "prompt"}, std::nullopt, wishes.thinking,
                 wishes.options);
}

Expected<void> generate(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  if (is_without_words(*call)) return reply_loaded(call), Expected<void>();
  AnswerRequest request;
  DLLM_TRY(const OllamaPrompt words, read_prompt(call->served(), fields));
  DLLM_TRY(const Json asked, from_ollama(fields));
  Fields ours(asked, &call->ignored);
  DLLM_TRY(const OllamaWishes wishes, read_common(call, ours, request));
  if (words.suffix) {
    DLLM_TRY(request.suffix, call->served().model.tokenize(*words.suffix, /*special=*/false));
  }
  DLLM_TRY(PreparedConversation prepared, generate_prompt(call, words, wishes));
  prepared.reader.prepare(request, wishes.options, asked);
  request.images = prepared.images;
  add_choices(request, prepared.ids, wishes.options, 1);
  return answer(call, std::move(request), ollama_format(call, /*chat=*/false, std::move(prepared.reader), wishes.logs));
}

Expected<void> told_in_their_fields(Expected<void> done) {
  if (done) return done;
  return in_ollama_fields(std::move(done).error());
}

}  // namespace

std::unique_ptr<AnswerFormat> ollama_format(const CallPtr& call, bool chat, AnswerReader reader, OllamaLogs logs) {
  return std::make_unique<OllamaFormat>(call, chat, std::move(reader), std::move(logs));
}

bool is_without_words(const Call& call) {
  if (call.route == "/api/chat") return call.body.value("messages", Json()).empty();
  const Json prompt = call.body.value("prompt", Json());
  return call.route == "/api/generate" && (prompt.is_null() || prompt == "") && !call.body.contains("suffix");
}

void reply_unloaded(const CallPtr& call) { reply_state(call, call->body.value("model", ""), "unload"); }

Expected<void> ollama_chat(const CallPtr& call) { return told_in_their_fields(chat(call)); }
Expected<void> ollama_generate(const CallPtr& call) { return told_in_their_fields(generate(call)); }

}  // namespace dllm::serve
