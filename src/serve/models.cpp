// GET /v1/models and /v1/models/NAME: OpenAI's fields and Anthropic's in one object, as their clients ask the same
// path.
#include <string>

#include "base/percent.h"
#include "base/try.h"
#include "base/utc.h"
#include "serve/answer.h"

namespace dllm::serve {
namespace {

Json model_json(const Api& api, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", api.created()},
          {"owned_by", "dllm"},
          {"type", "model"},
          {"display_name", name},
          {"created_at", utc_text(api.created())},
          {"max_model_len", api.model.context_length()},
          {"meta", {{"architecture", api.model.architecture()}, {"vocabulary", api.model.vocab_size()}}}};
}

}  // namespace

Expected<void> models(const CallPtr& call) {
  const Api& api = call->api;
  Json list = Json::array();
  for (const std::string& name : api.names()) list.push_back(model_json(api, name));
  call->reply({{"object", "list"},
               {"data", std::move(list)},
               {"first_id", api.names().front()},
               {"last_id", api.names().back()},
               {"has_more", false}});
  return {};
}

Expected<void> one_model(const CallPtr& call) {
  // A name may contain slashes, as those of a hub do, encoded or not.
  const std::string& path = call->exchange->request().path;
  const auto name = percent_decoded(std::string_view(path).substr(path.find("models/") + 7));
  if (!name || !call->api.is_served(*name)) return unknown_model(name.value_or(path), call->api.name());
  call->reply(model_json(call->api, *name == kDefaultName ? call->api.name() : *name));
  return {};
}

}  // namespace dllm::serve
