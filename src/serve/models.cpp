// GET /v1/models and /v1/models/NAME: OpenAI's fields and Anthropic's in one object, as their clients ask the same
// path.
#include <string>

#include "base/percent.h"
#include "base/try.h"
#include "base/utc.h"
#include "serve/answer.h"

namespace dllm::serve {
namespace {

Json model_json(const ModelEntry& model) {
  Json json = {{"id", model.name},
               {"object", "model"},
               {"created", model.modified},
               {"owned_by", "dllm"},
               {"type", "model"},
               {"display_name", model.name},
               {"created_at", utc_text(model.modified)}};
  if (model.context_length > 0) json["max_model_len"] = model.context_length;
  json["meta"] = {{"architecture", model.architecture}, {"vocabulary", model.vocabulary}};
  return json;
}

const char* state_name(ModelPool::State state) {
  switch (state) {
    case ModelPool::State::kAbsent:
    case ModelPool::State::kUnloading:
      return "unloaded";
    case ModelPool::State::kLoading:
      return "loading";
    case ModelPool::State::kLoaded:
      return "loaded";
  }
  return "unloaded";
}

/// Of a server with several models: whether it is loaded, too.
Json status_json(const ModelPool::Status& one) {
  Json json = model_json(one.entry);
  json["status"] = {{"value", state_name(one.state)}};
  return json;
}

Json ids(const Json& list, bool first) {
  if (list.empty()) return nullptr;
  return (first ? list.front() : list.back())["id"];
}

}  // namespace

Expected<void> models(const CallPtr& call) {
  Json list = Json::array();
  if (const ServedModel* only = call->api.only) {
    for (const std::string& name : only->names()) list.push_back(model_json(only->entry(name)));
  } else {
    for (const ModelPool::Status& one : call->api.models()) list.push_back(status_json(one));
  }
  const Json first = ids(list, true), last = ids(list, false);
  call->reply(
      {{"object", "list"}, {"data", std::move(list)}, {"first_id", first}, {"last_id", last}, {"has_more", false}});
  return {};
}

Expected<void> one_model(const CallPtr& call) {
  // A name may contain slashes, as those of a hub do, encoded or not.
  const std::string& path = call->exchange->request().path;
  const auto name = percent_decoded(std::string_view(path).substr(path.find("models/") + 7));
  if (const ServedModel* only = call->api.only) {
    if (!name || !only->is_served(*name)) return unknown_model(name.value_or(path), {only->name()});
    call->reply(model_json(only->entry(*name == kDefaultName ? only->name() : *name)));
    return {};
  }
  const auto entry = call->api.find_model(name.value_or(path));
  if (!entry) return unknown_model(name.value_or(path), call->api.model_names());
  for (const ModelPool::Status& one : call->api.models())
    if (one.entry.name == entry->name) return call->reply(status_json(one)), Expected<void>();
  call->reply(status_json({.entry = *entry}));
  return {};
}

}  // namespace dllm::serve
