// POST /v1/completions (OpenAI's API reference, "Create completion"): prompts as they are, texts or token ids.
#include <fmt/format.h>

#include "base/try.h"
#include "engine/trace.h"
#include "serve/answer.h"
#include "serve/formats.h"
#include "serve/request_options.h"

namespace dllm::serve {
namespace {

struct CompletionWishes {
  bool logs = false, usage = false;
  std::size_t choices = 1;          ///< per prompt
  std::vector<std::int32_t> shown;  ///< control tokens that have a text
  std::vector<std::string> echoed;  ///< by answer; empty: not echoed
};

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(const CallPtr& call, CompletionWishes wishes) : call_(call), wishes_(std::move(wishes)) {}

  Json whole(const std::vector<Generation>& answers) override {
    Json json = head();
    for (std::size_t i = 0; i < answers.size(); ++i)
      json["choices"].push_back(
          choice_json(i, echo(i) + answers[i].text, logs(answers[i], echo(i).size()), finish_name(answers[i].finish)));
    json["usage"] = usage_json(answers, wishes_.choices);
    json["dllm"] = Json::array();
    for (const Generation& answer : answers) json["dllm"].push_back(facts_json(answer));
    if (answers.size() == 1) json["dllm"] = Json(json["dllm"][0]);
    return json;
  }
  std::string opening() override {
    std::string text;
    for (std::size_t i = 0; i < wishes_.echoed.size(); ++i) text += chunk(i, echo(i), nullptr, nullptr);
    return text;
  }
  std::string text(std::size_t choice, std::string_view more) override {
    return chunk(choice, std::string(more), nullptr, nullptr);
  }
  std::string step(std::size_t choice, std::string_view canvas, const Json& facts) override {
    Json json = head();
    json["choices"].push_back(choice_json(choice, std::string(canvas), nullptr, nullptr));
    json["diffusion"] = facts;
    return sse(json);
  }
  std::string closing(std::size_t choice, const Generation& answer) override {
    Json json = head();
    json["choices"].push_back(choice_json(choice, "", logs(answer, echo(choice).size()), finish_name(answer.finish)));
    json["dllm"] = facts_json(answer);
    return sse(json);
  }
  std::string end(const std::vector<Generation>& answers) override {
    if (!wishes_.usage) return "data: [DONE]\n\n";
    Json json = head();
    json["usage"] = usage_json(answers, wishes_.choices);
    return sse(json) + "data: [DONE]\n\n";
  }
  std::string error(const ApiError& error) override { return sse(error_json(error, Dialect::kOpenAi)); }

 private:
  std::string echo(std::size_t choice) const { return wishes_.echoed.empty() ? "" : wishes_.echoed[choice]; }
  Json head() const {
    return {{"id", new_id("cmpl-", *call_)}, {"object", "text_completion"},  {"created", call_->created},
            {"model", call_->name()},        {"system_fingerprint", "dllm"}, {"choices", Json::array()}};
  }
  static Json choice_json(std::size_t index, std::string text, Json logs, Json finish) {
    return {{"text", std::move(text)},
            {"index", index},
            {"logprobs", std::move(logs)},
            {"finish_reason", std::move(finish)}};
  }
  std::string chunk(std::size_t choice, std::string text, Json logs, Json finish) const {
    Json json = head();
    json["choices"].push_back(choice_json(choice, std::move(text), std::move(logs), std::move(finish)));
    return sse(json);
  }
  Json logs(const Generation& answer, std::size_t offset) const {
    if (!wishes_.logs) return nullptr;
    Json json = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", nullptr},
                 {"text_offset", Json::array()}};
    for (const TokenLogProb& one : log_probs(call_->served().model, answer, wishes_.shown)) {
      json["tokens"].push_back(one.text);
      json["token_logprobs"].push_back(one.log_prob);
      json["text_offset"].push_back(offset);
      offset += one.text.size();
    }
    return json;
  }

  CallPtr call_;
  CompletionWishes wishes_;
};

struct Prompt {
  std::vector<std::int32_t> ids;
  std::optional<std::string> text;  ///< as it was sent, if it was a text
};
using Prompts = std::vector<Prompt>;

/// A text, token ids, or a list of either. The client has rendered the text, so control tokens are recognised.
Expected<Prompts> read_prompts(const ServedModel& served, const Json& prompt) {
  Prompts prompts;
  const auto add = [&](const Json& one) -> Expected<void> {
    if (one.is_string()) {
      const auto& text = one.get_ref<const std::string&>();
      DLLM_CHECK_OK(served.check_size(text.size(), "prompt"));
      DLLM_TRY(auto ids, served.model.prompt_ids(text, /*special=*/true));
      prompts.push_back({std::move(ids), text});
      return {};
    }
    DLLM_TRY(auto ids, token_ids(one, "prompt"));
    prompts.push_back({std::move(ids), std::nullopt});
    return {};
  };
  const bool list = prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
  if (!list) {
    DLLM_CHECK_OK(add(prompt));
    return prompts;
  }
  constexpr std::size_t kMostPrompts = 64;
  if (prompt.size() > kMostPrompts) return wrong_type("prompt", fmt::format("at most {} prompts", kMostPrompts));
  for (const Json& one : prompt) DLLM_CHECK_OK(add(one));
  return prompts;
}

}  // namespace

Expected<void> completions(const CallPtr& call) {
  const ServedModel& served = call->served();
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return wrong_type("prompt", "given");
  CompletionWishes wishes;
  DLLM_TRY(const bool echo, fields.flag("echo", false));
  DLLM_TRY(const auto logs, fields.integer("logprobs", 0, 5));
  wishes.logs = logs.has_value();
  if (echo && wishes.logs)
    return Error{ErrorCode::kUsage, "a diffusion model has no left-to-right likelihoods of its prompt", "logprobs",
                 "POST /v1/score estimates the likelihood of a continuation"};
  if (logs.value_or(0) > 0)
    return Error{ErrorCode::kUsage, "only the chosen tokens' probabilities are known", "logprobs", "give 0"};
  if (const Json* suffix = fields.find("suffix"); suffix != nullptr && *suffix != "")
    return Error{ErrorCode::kUsage, "text after the answer is not supported", "suffix", "leave it out"};
  DLLM_TRY(AnswerRequest request, read_stream_fields(fields));
  DLLM_TRY(wishes.usage, read_usage_wish(fields, request.stream));
  DLLM_CHECK_OK(read_shown(fields, served, request));
  wishes.shown = request.shown;
  DLLM_TRY(const auto choices, fields.integer("n", 1, kMostChoices));
  wishes.choices = static_cast<std::size_t>(choices.value_or(1));
  DLLM_TRY(const GenerateOptions options, read_options(fields, served.model, served.options));
  DLLM_TRY(const Prompts prompts, read_prompts(served, *prompt));
  for (const Prompt& one : prompts) {
    add_choices(request, one.ids, options, wishes.choices);
    if (!echo) continue;
    std::string text = one.text.value_or("");  // not the ids' text: a bos token is ours, not the client's
    if (!one.text) {
      DLLM_TRY(text, served.model.detokenize(one.ids, /*special=*/true));
    }
    wishes.echoed.insert(wishes.echoed.end(), wishes.choices, text);
  }
  return answer(call, std::move(request), std::make_unique<CompletionFormat>(call, std::move(wishes)));
}

/// llama.cpp's own route: one prompt as it is, and an answer in that server's form.
Expected<void> llama_completion(const CallPtr& call) {
  const ServedModel& served = call->served();
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return wrong_type("prompt", "given");
  DLLM_TRY(AnswerRequest request, read_stream_fields(fields));
  DLLM_CHECK_OK(read_shown(fields, served, request));
  DLLM_TRY(const GenerateOptions options, read_options(fields, served.model, served.options));
  DLLM_TRY(const Prompts prompts, read_prompts(served, *prompt));
  if (prompts.size() != 1) return wrong_type("prompt", "one text, or its token ids");
  add_choices(request, prompts.front().ids, options, 1);
  return answer(call, std::move(request), llama_format(call, prompt->is_string() ? *prompt : Json()));
}

}  // namespace dllm::serve
