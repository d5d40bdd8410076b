#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "serve/errors.h"
#include "serve/http.h"
#include "serve/json.h"
#include "serve/log_writer.h"
#include "serve/metrics.h"
#include "serve/server.h"
#include "serve/template_facts.h"

namespace dllm::serve {

class Api;
struct Call;
using CallPtr = std::shared_ptr<Call>;

/// Answers the call now or later; a returned error is sent as the answer.
using RouteHandler = Expected<void> (*)(const CallPtr& call);

/// One HTTP request that is being answered.
struct Call {
  Api& api;
  std::shared_ptr<Exchange> exchange;
  std::string id;        ///< request id, sent in X-Request-Id and logged
  std::string trace;     ///< of `traceparent`; empty: none
  std::string route;     ///< path of the route, or "other"
  std::string client{};  ///< whose turn it is in queues: a key's number, or an address
  RouteHandler handler = nullptr;
  Dialect dialect = Dialect::kOpenAi;
  Json body{};
  HttpHeaders headers{};  ///< of every answer
  Ignored ignored{};      ///< what the request asks for in vain
  std::string model{};    ///< the name by which the request asked for it; empty: none
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));  ///< seconds since 1970
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::shared_ptr<void> seat{};  ///< counts the call among its client's
  std::stop_source stop{};       ///< the client has gone: nobody waits for the answer

  bool gone() const { return stop.stop_requested(); }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
  /// Reads the field `model`. Errors: kUsage (another model than the served one).
  Expected<void> read_model(Fields& fields);
  /// The model's name in answers: that of the request, or the server's.
  const std::string& name() const;
  /// Those of every answer, and x-dllm-ignored.
  HttpHeaders answer_headers() const;
  void reply(HttpResponse response, const Json& facts = {});
  void reply(const Json& json) { reply(HttpResponse{.body = dump(json)}); }
  /// `logged`: what the log says instead, if the client may not know it all.
  void fail(const ApiError& error, const std::string& logged = "");
  void fail(const Error& error) { fail(api_error(error), error.message()); }
  /// Whether the request need not be worked on any more: its client has gone, or its time is over, which is then
  /// answered.
  bool is_over();
  /// Adds a line to the log and to the metrics; reply() and fail() call it, and streams when they end. The status is
  /// 499 if the client has gone, as nginx has it.
  void log(int status, const Json& facts) const;
};

struct Route {
  std::string_view method, path;
  RouteHandler handler;
  Dialect dialect = Dialect::kOpenAi;
  bool open = false;    ///< needs no key
  bool prefix = false;  ///< of all paths that begin with `path`
};

inline constexpr std::string_view kDefaultName = "default";  ///< the served model, whatever it is called

/// What all requests share: the model, the scheduler, the settings. Thread-safe.
class Api {
 public:
  Api(const LanguageModel& loaded, Scheduler& requests, const ServerOptions& settings, LogSink log);

  /// Begins with a request, in the thread of the connections, and answers it if that takes no work: refusals, and all
  /// requests without a body (/health, /metrics, the page). Null: it is answered. Otherwise read() comes next.
  CallPtr begin(const std::shared_ptr<Exchange>& exchange);
  /// Parses the request's body. False: it is answered.
  bool read(const CallPtr& call);
  /// Answers a request that was read.
  void answer(const CallPtr& call);
  /// All of it at once.
  void handle(const std::shared_ptr<Exchange>& exchange);
  void write_log(const Json& line);
  std::uint64_t lost_log_lines() const { return log_.lost(); }

  /// The model name in answers.
  const std::string& name() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  /// Whether requests may call the model so.
  bool is_served(std::string_view asked) const;
  /// Errors if a text cannot fit into the context however it is tokenized; avoids tokenizing it.
  Expected<void> check_size(std::size_t bytes, std::string_view field) const;
  /// K/V positions that fit at once.
  std::int64_t capacity() const;
  int retry_seconds() const;
  std::int64_t created() const { return created_; }
  /// Of the chat template; `tools`: of the one for conversations with tools.
  const TemplateFacts& facts(bool tools) const { return tools ? tool_facts_ : facts_; }
  /// All control tokens of the vocabulary.
  const std::vector<std::int32_t>& control_tokens() const { return control_tokens_; }

  const LanguageModel& model;
  Scheduler& scheduler;
  const ServerOptions& options;
  Metrics metrics{};
  std::function<std::size_t()> connections{};
  std::atomic<bool> draining{false};
  std::function<std::optional<ApiError>()> unfit{};  ///< why the model cannot answer now; null: it always can
  std::atomic<std::int32_t> scoring{0};              ///< unfinished requests to /v1/score and /v1/choose

 private:
  std::optional<ApiError> admit(Call& call, const Route* route);
  bool seat(Call& call);
  bool local_host(std::string_view host) const;
  std::optional<std::size_t> key_of(const HttpRequest& request) const;
  void run(const CallPtr& call, const std::function<Expected<void>()>& work);
  bool origin_listed(std::string_view origin) const;

  std::vector<std::string> names_;
  std::size_t longest_token_ = 1;  ///< bytes
  std::vector<std::int32_t> control_tokens_;
  TemplateFacts facts_, tool_facts_;
  std::int64_t created_ = 0;
  std::mutex clients_mutex_;
  std::map<std::string, int> unanswered_;  ///< requests with bodies, by client
  LogWriter log_;
};

/// All routes (routes.cpp).
const std::vector<Route>& routes();

}  // namespace dllm::serve
