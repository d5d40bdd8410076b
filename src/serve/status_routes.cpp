// The server's state: /health, /metrics, /props, /slots.
#include "base/try.h"
#include "dllm/version.h"
#include "engine/trace.h"
#include "serve/answer.h"

namespace dllm::serve {
Expected<void> health(const CallPtr& call) {
  const auto unfit = call->api.only != nullptr ? call->api.only->unfit() : std::nullopt;
  if (call->api.draining)
    call->fail(ApiError{503, "the server is shutting down", "", ""});
  else if (unfit)
    call->reply(error_response(*unfit, call->dialect, call->api.only->retry_seconds()), {{"error", unfit->message}});
  else
    call->reply({{"status", "ok"}});
  return {};
}

Expected<void> metrics(const CallPtr& call) {
  call->reply(HttpResponse{.body = call->api.metrics_text(), .type = "text/plain; version=0.0.4"});
  return {};
}

Expected<void> props(const CallPtr& call) {
  const ServedModel& served = call->served();
  DLLM_TRY(const ResolvedOptions resolved, served.model.resolve(served.options.defaults));
  call->reply({{"default_generation_settings", options_json(resolved)},
               {"total_slots", served.scheduler.options().parallel},
               {"queue", served.scheduler.options().queue},
               {"prefix_cache_bytes", served.scheduler.options().prefix_bytes},
               {"model_path", served.file_name()},
               {"model_alias", served.name()},
               {"n_ctx", served.model.context_length()},
               {"chat_template", served.model.chat_template()},
               {"max_body_bytes", call->api.options.http.body},
               {"modalities", {{"vision", served.model.reads_images()}, {"audio", false}}},
               {"build_info", std::string("dllm ") + DLLM_VERSION}});
  return {};
}

Expected<void> slots(const CallPtr& call) {
  Json list = Json::array();
  const auto add = [&list](const ServedModel& served, const std::string& name) {
    for (const RequestState& one : served.scheduler.requests()) {
      list.push_back({{"id", one.id},
                      {"is_processing", one.running},
                      {"n_prompt", one.prompt_tokens},
                      {"n_predict", one.length},
                      {"n_decided", one.decided},
                      {"steps", one.steps},
                      {"nfe", one.nfe},
                      {"seconds", one.seconds}});
      if (!name.empty()) list.back()["model"] = name;
    }
  };
  if (call->api.only != nullptr) {
    add(*call->api.only, "");
  } else {
    for (const ModelPool::Status& one : call->api.pool->states())
      if (const ServedModel* served = served_by(one.lease)) add(*served, one.entry.name);
  }
  call->reply(list);
  return {};
}

}  // namespace dllm::serve
