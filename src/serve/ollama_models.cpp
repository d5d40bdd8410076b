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

Json details(const ModelEntry& of) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", of.architecture},
          {"families", {of.architecture}},
          {"parameter_size", parameters_text(of.parameters)},
          {"quantization_level", of.type}};
}

std::string tagged(const std::string& name) { return name.find(':') == name.npos ? name + ":latest" : name; }

Json entry(const ModelEntry& of) {
  return {{"name", tagged(of.name)},
          {"model", tagged(of.name)},
          {"modified_at", utc_text(of.modified)},
          {"size", of.bytes},
          {"digest", ""},
          {"details", details(of)}};
}

Json running(const ModelEntry& of, std::optional<double> seconds_left) {
  Json one = entry(of);
  // Of one that is never unloaded too, clients expect a time, and show how long it is until then.
  constexpr double kYear = 365 * 86400.0;
  const auto left = std::chrono::duration<double>(std::clamp(seconds_left.value_or(kYear), 0.0, kYear));
  one["expires_at"] = utc_text(std::chrono::system_clock::now() +
                               std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
  one["size_vram"] = 0;
  one["context_length"] = of.context_length;
  return one;
}

/// `vision`: the model reads images, which only a server with one model can.
void reply_shown(const CallPtr& call, const ModelEntry& of, bool vision) {
  Json capabilities = {"completion"};
  if (of.chat_template.find("tools") != std::string::npos) capabilities.push_back("tools");
  if (vision) capabilities.push_back("vision");
  call->reply({{"license", ""},
               {"modelfile", "FROM " + of.name},
               {"parameters", ""},
               {"template", of.chat_template},
               {"details", details(of)},
               {"model_info",
                {{"general.architecture", of.architecture},
                 {"general.basename", of.name},
                 {of.architecture + ".context_length", of.context_length},
                 {of.architecture + ".vocab_size", of.vocabulary}}},
               {"capabilities", std::move(capabilities)},
               {"modified_at", utc_text(of.modified)}});
}

}  // namespace

Expected<void> ollama_tags(const CallPtr& call) {
  Json list = Json::array();
  if (const ServedModel* only = call->api.only) {
    for (const std::string& name : only->names()) list.push_back(entry(only->entry(name)));
  } else {
    for (const ModelPool::Status& one : call->api.models()) list.push_back(entry(one.entry));
  }
  call->reply({{"models", std::move(list)}});
  return {};
}

Expected<void> ollama_running(const CallPtr& call) {
  Json list = Json::array();
  if (const ServedModel* only = call->api.only) {
    list.push_back(running(only->entry(only->name()), std::nullopt));
  } else {
    for (const ModelPool::Status& one : call->api.pool->states())
      if (one.state == ModelPool::State::kLoaded) list.push_back(running(one.entry, one.seconds_left));
  }
  call->reply({{"models", std::move(list)}});
  return {};
}

Expected<void> ollama_show(const CallPtr& call) {
  Fields fields(call->body);
  if (fields.find("model") == nullptr && call->body.contains("name")) call->body["model"] = call->body["name"];
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  if (const ServedModel* only = call->api.only) {
    reply_shown(call, only->entry(only->name()), only->model.reads_images());
    return {};
  }
  const auto found = call->api.find_model(call->model);
  if (!found) return unknown_model(call->model, call->api.model_names());
  reply_shown(call, *found, /*vision=*/false);
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
                 : "this server does not change which models there are: " + call->route +
                       " is not supported; `dllm pull` downloads models",
      "", ""});
  return {};
}

}  // namespace dllm::serve
