#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "serve/http.h"
#include "serve/model_pool.h"

namespace dllm::serve {

enum class LogForm { kText, kJson, kNone };

/// Writes bytes, in a thread of its own. If it blocks for ever, that thread outlives the server.
using LogSink = std::function<void(std::string_view)>;

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  ///< 0: any
  std::string socket{};       ///< path of a Unix socket, listened on instead; empty: none
  HttpLimits http{};
  SchedulerOptions scheduling{};
  /// Positions that one request may generate; absent: the context's length.
  std::optional<std::int32_t> max_tokens{};
  double request_seconds = 600;      ///< until a request has ended
  double drain_seconds = 60;         ///< for requests in progress, after SIGTERM
  std::vector<std::string> keys;     ///< each of them gives access; empty: access is open
  std::vector<std::string> origins;  ///< of web pages that may send requests ("*": all)
  std::vector<std::string> names;    ///< accepted for `model`, the first is reported; empty: the model's own
  bool any_model = false;            ///< any name is accepted for `model`
  bool split_thoughts = true;        ///< thoughts are sent apart from the text; false: as the model writes them
  GenerateOptions defaults;          ///< of every request
  std::string model_path;            ///< for /props; of a server with one model
  LogForm log = LogForm::kText;
  /// Brings a model of a hub into the cache, for /api/pull, which is refused without it. `tell`: the current file, and
  /// the bytes of all files and of those that are there; false: nobody waits any more. Called in a thread that may
  /// wait.
  std::function<Expected<void>(
      const std::string& name,
      const std::function<bool(std::string_view file, std::uint64_t total, std::uint64_t done)>& tell)>
      pull{};
};

/// Serves one model over HTTP until SIGTERM or SIGINT, after which requests in progress are finished; a second signal
/// ends it at once. Logs one line per request to `log`. Calls `on_ready` with the port. Errors: kIo (the address; the
/// model's file has changed), kUsage (options), kResource.
Expected<void> serve(const LanguageModel& model, const ServerOptions& options, LogSink log,
                     const std::function<void(std::uint16_t)>& on_ready = {});

/// The models of a server with several, which are loaded when they are asked for. The functions may be called in any
/// thread, and at the same time.
struct ModelSource {
  std::function<std::vector<ModelEntry>()> list{};
  /// By a name in a request; empty: the one for requests that name none. nullopt: there is no such model.
  std::function<std::optional<ModelEntry>(const std::string& name)> find{};
  /// `go_on`: see ModelPool::Work.
  std::function<Expected<LanguageModel>(const ModelEntry& entry, const std::function<bool()>& go_on)> load{};
  std::function<std::int64_t(const ModelEntry& entry)> memory_needed{};
};

/// A model that is loaded before the server is ready. Like the others it may be unloaded.
struct FirstModel {
  ModelEntry entry;
  LanguageModel model;
};

/// The same with several models. Of `options`, `names`, `model_path` and `any_model` are not read.
Expected<void> serve_models(const ModelSource& source, const ModelPool::Limits& limits, std::optional<FirstModel> first,
                            const ServerOptions& options, LogSink log,
                            const std::function<void(std::uint16_t)>& on_ready = {});

}  // namespace dllm::serve
