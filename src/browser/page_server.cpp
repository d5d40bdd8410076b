#include "browser/page_server.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/try.h"
#include "dllm/version.h"
#include "engine/option_catalog.h"
#include "engine/trace.h"

namespace dllm::browser {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// A field of a request as the text of an option.
std::string option_text(const Json& value) { return value.is_string() ? value.get<std::string>() : line_of(value); }

/// Everything in the body that says nothing else is an option.
Expected<GenerateOptions> options_of(const Json& body) {
  GenerateOptions options;
  for (const auto& [key, value] : body.items()) {
    if (key == "messages" || key == "model" || key == "stream" || key == "diffusion_events") continue;
    if (auto set = options.set(key, option_text(value)); !set) {
      Error error = std::move(set).error();
      error.where = key;
      return error;
    }
  }
  return options;
}

/// Token ids of the conversation; without a chat template, of its last message alone.
Expected<TemplatedPrompt> prompt_of(const LanguageModel& model, const Json& body) {
  const auto messages = body.find("messages");
  if (messages == body.end() || !messages->is_array() || messages->empty() || !messages->back().is_object())
    return Error{ErrorCode::kUsage, "a list of messages is expected", "messages", ""};
  if (model.has_chat_template())
    return model.render_template(line_of({{"messages", *messages}, {"add_generation_prompt", true}}));
  const Json content = messages->back().value("content", Json());
  if (!content.is_string()) return Error{ErrorCode::kUsage, "a text is expected", "messages", ""};
  DLLM_TRY(auto ids, model.prompt_ids(content.get<std::string>(), /*special=*/false));
  return TemplatedPrompt{std::move(ids), ""};
}

}  // namespace

PageServer::~PageServer() { cancel(); }

Expected<void> PageServer::load(std::span<const std::byte> gguf, const std::string& name, bool embedded,
                                const LoadOptions& options) {
  cancel();
  scheduler_.reset();  // it refers to the model
  model_.reset();
  DLLM_TRY(auto model, LanguageModel::load_bytes(gguf, name, options));
  model_.emplace(std::move(model));
  DLLM_TRY(scheduler_, Scheduler::create(*model_, {.parallel = 1, .queue = 1}));
  name_ = name;
  embedded_ = embedded;
  return {};
}

Expected<std::string> PageServer::props() const {
  DLLM_TRY(const ResolvedOptions resolved, model_->resolve({}));
  return line_of({{"default_generation_settings", options_json(resolved)},
                  {"model_path", embedded_ ? "" : name_},
                  {"model_alias", name_},
                  {"architecture", model_->architecture()},
                  {"n_ctx", model_->context_length()},
                  {"isa", model_->isa()},
                  {"build_info", std::string("dllm ") + DLLM_VERSION}});
}

Expected<void> PageServer::begin(std::string_view body) {
  if (answer_) return Error{ErrorCode::kResource, "an answer is under way", "", "wait for its end, or stop it"};
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{ErrorCode::kUsage, "an object is expected", "body", ""};
  DLLM_TRY(TemplatedPrompt prompt, prompt_of(*model_, json));
  ScheduledRequest request;
  DLLM_TRY(request.options, options_of(json));
  auto answer = std::make_unique<PageAnswer>(*model_, std::move(prompt.opening));
  request.prompt = std::move(prompt.ids);
  request.shown = answer->shown_tokens();
  request.detail = StepDetail::kCanvas;
  request.on_step = [to = answer.get()](const StepEvent& event) {
    to->on_step(event);
    return true;
  };
  request.on_done = [to = answer.get()](const Expected<Generation>& end) { to->on_done(end); };
  std::vector<ScheduledRequest> requests;
  requests.push_back(std::move(request));
  DLLM_TRY(const auto ids, scheduler_->submit(std::move(requests)));
  running_ = ids.front();
  answer_ = std::move(answer);
  return {};
}

Reply PageServer::call(std::string_view path, std::string_view body) {
  Expected<std::string> reply = Error{ErrorCode::kUsage, "there is no such route", std::string(path), ""};
  if (!model_) {
    reply = Error{ErrorCode::kUsage, "no model is loaded", "", ""};
  } else if (path == "props") {
    reply = props();
  } else if (path == "options") {
    reply = line_of(option_catalog(*model_));
  } else if (path == "v1/chat/completions") {
    auto begun = begin(body);
    reply = begun ? Expected<std::string>("") : Expected<std::string>(std::move(begun).error());
  }
  if (!reply) return {400, error_text(reply.error())};
  return {200, std::move(*reply)};
}

bool PageServer::step(std::string& events) {
  if (!answer_) return false;
  const bool worked = scheduler_->step();
  events = answer_->take_events();
  if (worked && !answer_->ended()) return true;
  answer_.reset();
  return false;
}

void PageServer::cancel() {
  if (!answer_) return;
  scheduler_->cancel(running_);  // calls on_done(), which needs the answer
  answer_.reset();
}

}  // namespace dllm::browser
