#include "app/serve_models.h"

#include <filesystem>
#include <utility>

#include "app/cli/fit.h"
#include "base/try.h"
#include "hub/cached_models.h"
#include "hub/config.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;

bool is_named(const ModelFlags& model) { return !model.path.empty() || !model.hub.name.empty(); }

/// The first flag that is about one model; null: there is none.
const char* flag_of_one_model(const ModelFlags& model, const serve::ServerOptions& server) {
  if (!server.names.empty()) return "--alias";
  if (server.any_model) return "--any-model";
  if (!model.chat_template.empty()) return "--chat-template";
  if (!model.chat_template_file.empty()) return "--chat-template-file";
  if (model.raw) return "--raw";
  if (!model.load.lora.empty()) return "--lora";
  if (!model.load.lora_draft.empty()) return "--lora-draft";
  if (!model.load.draft_model.empty()) return "--draft-model";
  if (!model.load.weight_cache.empty() && model.load.weight_cache != "auto") return "--weight-cache";
  return nullptr;
}

}  // namespace

void SeveralModels::declare(Flags& flags) {
  flags.group("Several models");
  flags.add({.names = {"--models-dir"},
             .value = "DIR",
             .help = "folder of models, each of which is loaded when a request names it, as those of the hub's cache",
             .takes_path = true,
             .apply = into(folder_)});
  constexpr const char* kFit = "those that fit into memory";
  flags.add({.names = {"--models-max"},
             .value = "N",
             .help = "models that are loaded at once; the least recently used one makes room",
             .default_text = kFit,
             .apply = into(most_, 1, 1 << 16, kFit)});
  flags.add({.names = {"--models-idle"},
             .value = "S",
             .help = "seconds after which an unused model is unloaded",
             .default_text = "never",
             .apply = into(idle_seconds_, 0, 1e9)});
}

Expected<bool> SeveralModels::wanted(const ModelFlags& model, const serve::ServerOptions& server) {
  const bool asked = !folder_.empty() || most_ || idle_seconds_ >= 0;
  if (is_named(model) && folder_.empty()) {
    if (!asked) return false;
    return Error{ErrorCode::kUsage, "there is only one model", most_ ? "--models-max" : "--models-idle",
                 "give --models-dir, or leave the model's name out"};
  }
  const char* const single = flag_of_one_model(model, server);
  if (asked && single != nullptr)
    return Error{ErrorCode::kUsage, "it is for a server with one model", single, "leave it out"};
  std::error_code ignored;
  if (!folder_.empty() && !fs::is_directory(folder_, ignored))
    return Error{ErrorCode::kUsage, "it is no folder", "--models-dir " + folder_, ""};
  // Whoever has no home has no cache.
  if (const auto config = hub::config_from(hub::process_environment)) cache_ = config->cache;
  return asked || (single == nullptr && !hub::cached_models(cache_).empty());
}

/// The model that is named, else the embedded one; with a folder and no name there is none.
Expected<std::optional<serve::FirstModel>> SeveralModels::open_first(ModelFlags& model, Session& session) const {
  if (!is_named(model) && !folder_.empty()) {
    model.limit_threads(session.terminal);
    return std::optional<serve::FirstModel>();
  }
  const std::string hub_name = model.hub.name;
  DLLM_TRY(LanguageModel loaded, model.open(session));
  auto entry = model_entry(!hub_name.empty()    ? hub_name
                           : model.path.empty() ? loaded.name()
                                                : model_stem(model.path),
                           model.path);
  if (!entry) return Error{ErrorCode::kInvalidFile, "it is no model", model.path, ""};
  return std::optional(serve::FirstModel{*std::move(entry), std::move(loaded)});
}

Expected<void> SeveralModels::serve(ModelFlags& model, const serve::ServerOptions& server, Session& session,
                                    serve::LogSink log, const std::function<void(std::uint16_t)>& on_ready) {
  DLLM_TRY(auto first, open_first(model, session));
  ModelCatalog catalog(first ? std::optional(first->entry) : std::nullopt, folder_, cache_);
  serve::ModelSource source;
  source.list = [&catalog] { return catalog.list(); };
  source.find = [&catalog](const std::string& name) { return catalog.find(name); };
  source.memory_needed = [](const serve::ModelEntry& entry) { return memory_needed(entry.bytes); };
  source.load = [&model](const serve::ModelEntry& entry,
                         const std::function<bool()>& go_on) -> Expected<LanguageModel> {
    LoadOptions options = model.load;
    options.progress = [&go_on](double) { return go_on(); };
    DLLM_TRY(LanguageModel loaded, LanguageModel::load(entry.path, options));
    if (!model.template_kwargs.empty()) DLLM_CHECK_OK(loaded.set_template_variables(model.template_kwargs));
    loaded.set_special_content(model.special);
    return loaded;
  };
  serve::ModelPool::Limits limits{.models = most_.value_or(0)};
  if (idle_seconds_ >= 0) limits.idle_seconds = idle_seconds_;
  limits.waiting = static_cast<std::size_t>(server.scheduling.queue + server.scheduling.parallel);
  return serve::serve_models(source, limits, std::move(first), server, std::move(log), on_ready);
}

}  // namespace dllm::app
