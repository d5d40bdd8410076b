#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/cli/flags.h"
#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "app/model_catalog.h"
#include "dllm/error.h"
#include "serve/server.h"

namespace dllm::app {

/// `dllm serve` with several models.
class SeveralModels {
 public:
  /// --models-dir, --models-max, --models-idle
  void declare(Flags& flags);

  /// Whether the flags ask for several models: there is a folder of them, or no model is named, and the hub's cache is
  /// not empty. To be called before serve(). Errors: kUsage (flags for one model together with flags for several; a
  /// folder that is none).
  Expected<bool> wanted(const ModelFlags& model, const serve::ServerOptions& server);

  /// Serves the model of `-m` or `-hf`, the folder and the cache until the end. Errors: those of ModelFlags::open() and
  /// serve_models().
  Expected<void> serve(ModelFlags& model, const serve::ServerOptions& server, Session& session, serve::LogSink log,
                       const std::function<void(std::uint16_t)>& on_ready);

 private:
  Expected<std::optional<serve::FirstModel>> open_first(ModelFlags& model, Session& session) const;

  std::string folder_, cache_;
  std::optional<std::int32_t> most_;
  double idle_seconds_ = -1;  ///< negative: never
};

}  // namespace dllm::app
