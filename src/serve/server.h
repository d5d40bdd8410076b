#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "serve/http.h"

namespace dllm::serve {

enum class LogForm { kText, kJson, kNone };

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  ///< 0: any
  HttpLimits http{};
  SchedulerOptions scheduling{};
  /// Positions that one request may generate; absent: what the context holds.
  std::optional<std::int32_t> max_tokens{};
  double request_seconds = 600;      ///< until a request has ended
  double drain_seconds = 60;         ///< for what has begun, after SIGTERM
  std::vector<std::string> keys;     ///< any of them opens the server; empty: everyone may
  std::vector<std::string> origins;  ///< of web pages that may call ("*": all)
  std::vector<std::string> names;    ///< that the model is asked for by, the first is told; empty: the model's own
  GenerateOptions defaults;          ///< of every request
  std::string model_path;            ///< for /props
  LogForm log = LogForm::kText;
};

/// Serves the model over HTTP until SIGTERM or SIGINT, which let end what has begun; a second one does not. A line per
/// request goes to `log`. `on_ready` is told the port. Errors: kIo (the address), kUsage (options).
Expected<void> serve(const LanguageModel& model, const ServerOptions& options, std::ostream& log,
                     const std::function<void(std::uint16_t)>& on_ready = {});

}  // namespace dllm::serve
