// The server's state: /health, /metrics, /props, /slots.
#include <filesystem>

#include "base/try.h"
#include "dllm/version.h"
#include "engine/trace.h"
#include "serve/answer.h"

namespace dllm::serve {
Expected<void> health(const CallPtr& call) {
  const auto unfit = call->api.unfit ? call->api.unfit() : std::nullopt;
  if (call->api.draining)
    call->fail(ApiError{503, "the server is shutting down", "", ""});
  else if (unfit)
    call->fail(*unfit);
  else
    call->reply({{"status", "ok"}});
  return {};
}

Expected<void> metrics(const CallPtr& call) {
  const Api& api = call->api;
  const Metrics::Elsewhere elsewhere{api.capacity(), api.connections ? api.connections() : 0, api.lost_log_lines()};
  call->reply(
      HttpResponse{.body = api.metrics.text(api.scheduler.counters(), elsewhere), .type = "text/plain; version=0.0.4"});
  return {};
}

Expected<void> props(const CallPtr& call) {
  const Api& api = call->api;
  DLLM_TRY(const ResolvedOptions resolved, api.model.resolve(api.options.defaults));
  call->reply({{"default_generation_settings", options_json(resolved)},
               {"total_slots", api.scheduler.options().parallel},
               {"queue", api.scheduler.options().queue},
               {"prefix_cache_bytes", api.scheduler.options().prefix_bytes},
               {"model_path", std::filesystem::path(api.options.model_path).filename().string()},  // no folder

               {"model_alias", api.name()},
               {"n_ctx", api.model.context_length()},
               {"chat_template", api.model.chat_template()},
               {"build_info", std::string("dllm ") + DLLM_VERSION}});
  return {};
}

Expected<void> slots(const CallPtr& call) {
  Json list = Json::array();
  for (const RequestState& one : call->api.scheduler.requests())
    list.push_back({{"id", one.id},
                    {"is_processing", one.running},
                    {"n_prompt", one.prompt_tokens},
                    {"n_predict", one.length},
                    {"n_decided", one.decided},
                    {"steps", one.steps},
                    {"nfe", one.nfe},
                    {"seconds", one.seconds}});
  call->reply(list);
  return {};
}

}  // namespace dllm::serve
