// What is served, as Ollama's API tells it: /api/tags, /api/ps, /api/show, /api/version; and what is not.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/try.h"
#include "base/utc.h"
#include "dllm/version.h"
#include "serve/ollama.h"

namespace dllm::serve {
namespace {

/// "8.0B", "1.1M", as Ollama writes sizes.
std::string parameters_text(std::int64_t count) {
  const auto parameters = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", parameters / 1e9);
  return count >= 1'000'000 ? fmt::format("{:.2f}M", parameters / 1e6) : fmt::format("{:.2f}K", parameters / 1e3);
}

/// What clients are told of a model, loaded or not.
struct Shown {
  std::string architecture, type, chat_template;
  std::int64_t parameters = 0, bytes = 0, modified = 0, context = 0, vocabulary = 0;
};

Shown shown(const ServedModel& served) {
  const ModelSize size = served.model.size();
  return {.architecture = served.model.architecture(),
          .type = size.type,
          .chat_template = served.model.chat_template(),
          .parameters = size.parameters,
          .bytes = size.bytes,
          .modified = served.created(),
          .context = served.model.context_length(),
          .vocabulary = served.model.vocab_size()};
}

Shown shown(const ModelEntry& entry) {
  return {.architecture = entry.architecture,
          .type = entry.type,
          .chat_template = entry.chat_template,
          .parameters = entry.parameters,
          .bytes = entry.bytes,
          .modified = entry.modified,
          .context = entry.context_length,
          .vocabulary = entry.vocabulary};
}

Json details(const Shown& of) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", of.architecture},
          {"families", {of.architecture}},
          {"parameter_size", parameters_text(of.parameters)},
          {"quantization_level", of.type}};
}

std::string tagged(const std::string& name) { return name.find(':') == name.npos ? name + ":latest" : name; }

Json entry(const Shown& of, const std::string& name) {
  return {{"name", tagged(name)}, {"model", tagged(name)}, {"modified_at", utc_text(of.modified)},
          {"size", of.bytes},     {"digest", ""},          {"details", details(of)}};
}

Json running(const Shown& of, const std::string& name, std::optional<double> seconds_left) {
  Json one = entry(of, name);
  // Of one that is never unloaded too, clients expect a time, and show how long it is until then.
  constexpr double kYear = 365 * 86400.0;
  const auto left = std::chrono::duration<double>(std::clamp(seconds_left.value_or(kYear), 0.0, kYear));
  one["expires_at"] = utc_text(std::chrono::system_clock::now() +
                               std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
  one["size_vram"] = 0;
  one["context_length"] = of.context;
  return one;
}

void reply_shown(const CallPtr& call, const Shown& of, const std::string& name) {
  Json capabilities = {"completion"};
  if (of.chat_template.find("tools") != std::string::npos) capabilities.push_back("tools");
  call->reply({{"license", ""},
               {"modelfile", "FROM " + name},
               {"parameters", ""},
               {"template", of.chat_template},
               {"details", details(of)},
               {"model_info",
                {{"general.architecture", of.architecture},
                 {"general.basename", name},
                 {of.architecture + ".context_length", of.context},
                 {of.architecture + ".vocab_size", of.vocabulary}}},
               {"capabilities", std::move(capabilities)},
               {"modified_at", utc_text(of.modified)}});
}

}  // namespace

Expected<void> ollama_tags(const CallPtr& call) {
  Json list = Json::array();
  if (const ServedModel* only = call->api.only) {
    for (const std::string& name : only->names()) list.push_back(entry(shown(*only), name));
  } else {
    for (const ModelPool::Status& one : call->api.models()) list.push_back(entry(shown(one.entry), one.entry.name));
  }
  call->reply({{"models", std::move(list)}});
  return {};
}

Expected<void> ollama_running(const CallPtr& call) {
  Json list = Json::array();
  if (const ServedModel* only = call->api.only) {
    list.push_back(running(shown(*only), only->name(), std::nullopt));
  } else {
    for (const ModelPool::Status& one : call->api.pool->states())
      if (one.state == ModelPool::State::kLoaded)
        list.push_back(running(shown(one.entry), one.entry.name, one.seconds_left));
  }
  call->reply({{"models", std::move(list)}});
  return {};
}

Expected<void> ollama_show(const CallPtr& call) {
  Fields fields(call->body);
  if (fields.find("model") == nullptr && call->body.contains("name")) call->body["model"] = call->body["name"];
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  if (const ServedModel* only = call->api.only) {
    reply_shown(call, shown(*only), only->name());
    return {};
  }
  const auto found = call->api.find_model(call->model);
  if (!found) return unknown_model(call->model, call->api.model_names());
  reply_shown(call, shown(*found), found->name);
  return {};
}

Expected<void> ollama_version(const CallPtr& call) {
  call->reply({{"version", kOllamaVersion}, {"dllm", DLLM_VERSION}});
  return {};
}

Expected<void> ollama_unsupported(const CallPtr& call) {
  const bool embeddings = call->route.starts_with("/api/embed");
  call->fail(ApiError{
      404,
      embeddings ? "a diffusion language model has no embeddings of texts: " + call->route + " is not supported"
                 : "this server answers with the model that it was started with: " + call->route +
                       " is not supported; `dllm pull` downloads models",
      "", ""});
  return {};
}

}  // namespace dllm::serve
