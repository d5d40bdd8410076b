// What is served, as Ollama's API tells it: /api/tags, /api/ps, /api/show, /api/version; and what is not.
#include <fmt/format.h>

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

Json details(const Api& api) {
  const ModelSize size = api.model.size();
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", api.model.architecture()},
          {"families", {api.model.architecture()}},
          {"parameter_size", parameters_text(size.parameters)},
          {"quantization_level", size.type}};
}

std::string tagged(const std::string& name) { return name.find(':') == name.npos ? name + ":latest" : name; }

Json entry(const Api& api, const std::string& name) {
  return {{"name", tagged(name)},           {"model", tagged(name)}, {"modified_at", utc_text(api.created())},
          {"size", api.model.size().bytes}, {"digest", ""},          {"details", details(api)}};
}

}  // namespace

Expected<void> ollama_tags(const CallPtr& call) {
  Json list = Json::array();
  for (const std::string& name : call->api.names()) list.push_back(entry(call->api, name));
  call->reply({{"models", std::move(list)}});
  return {};
}

Expected<void> ollama_running(const CallPtr& call) {
  Json one = entry(call->api, call->api.name());
  // It is never unloaded; clients expect a time, and show how long it is until then.
  one["expires_at"] = utc_text(std::chrono::system_clock::now() + std::chrono::hours(24 * 365));
  one["size_vram"] = 0;
  one["context_length"] = call->api.model.context_length();
  call->reply({{"models", Json::array({std::move(one)})}});
  return {};
}

Expected<void> ollama_show(const CallPtr& call) {
  Fields fields(call->body);
  if (fields.find("model") == nullptr && call->body.contains("name")) call->body["model"] = call->body["name"];
  DLLM_CHECK_OK(read_ollama_model(call, fields));
  const Api& api = call->api;
  const std::string architecture = api.model.architecture();
  Json capabilities = {"completion"};
  if (api.model.chat_template().find("tools") != std::string::npos) capabilities.push_back("tools");
  call->reply({{"license", ""},
               {"modelfile", "FROM " + api.name()},
               {"parameters", ""},
               {"template", api.model.chat_template()},
               {"details", details(api)},
               {"model_info",
                {{"general.architecture", architecture},
                 {"general.basename", api.name()},
                 {architecture + ".context_length", api.model.context_length()},
                 {architecture + ".vocab_size", api.model.vocab_size()}}},
               {"capabilities", std::move(capabilities)},
               {"modified_at", utc_text(api.created())}});
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
