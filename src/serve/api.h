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
#include <utility>
#include <variant>
#include <vector>

#include "dllm/scheduler.h"
#include "serve/errors.h"
#include "serve/http.h"
#include "serve/json.h"
#include "serve/lane.h"
#include "serve/log_writer.h"
#include "serve/metrics.h"
#include "serve/model_pool.h"
#include "serve/served_model.h"
#include "serve/server.h"

namespace dllm::serve {

class Api;
struct Call;
using CallPtr = std::shared_ptr<Call>;

/// Answers the call now or later; a returned error is sent as the answer.
using RouteHandler = Expected<void> (*)(const CallPtr& call);

/// What answers a route, if the server has several models.
enum class Answers : std::uint8_t {
  kModel,   ///< the one that the request names
  kServer,  ///< no model; but it may read files
  kAtOnce,  ///< no model, and nothing else that takes time
};

/// One HTTP request that is being answered.
struct Call {
  Api& api;
  std::shared_ptr<Exchange> exchange;
  std::string id;        ///< request id, sent in X-Request-Id and logged
  std::string trace;     ///< of `traceparent`; empty: none
  std::string route;     ///< path of the route, or "other"
  std::string client{};  ///< whose turn it is in queues: a key's number, or an address
  RouteHandler handler = nullptr;
  Answers by = Answers::kModel;
  Dialect dialect = Dialect::kOpenAi;
  Json body{};
  HttpHeaders headers{};  ///< of every answer
  Ignored ignored{};      ///< what the request asks for in vain
  std::string model{};    ///< the name by which the request asked for it; empty: none
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));  ///< seconds since 1970
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::shared_ptr<void> seat{};   ///< counts the call among its client's
  ServedModel* bound = nullptr;   ///< Api::bind()
  std::shared_ptr<void> lease{};  ///< keeps it loaded
  std::stop_source stop{};        ///< the client has gone

  /// The model that answers; of routes that need one.
  ServedModel& served() const { return *bound; }
  bool gone() const;     ///< nobody waits for the answer
  bool is_late() const;  ///< its time is over
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
  /// 499, which nginx has for it, if nobody waits for the answer: the client has gone, or the server ended.
  void log(int status, const Json& facts) const;
};

struct Route {
  std::string_view method, path;
  RouteHandler handler;
  Dialect dialect = Dialect::kOpenAi;
  Answers by = Answers::kModel;
  bool open = false;    ///< needs no key
  bool prefix = false;  ///< of all paths that begin with `path`
};

/// What all requests share: the models, the settings, the log. Thread-safe.
class Api {
 public:
  Api(const ServerOptions& settings, LogSink log);

  /// Begins with a request, in the thread of the connections, and answers it if that takes no work: refusals, and
  /// requests without a body (/health, /metrics, the page) that wait for no model. Null: it is answered. Otherwise
  /// read() comes next.
  CallPtr begin(const std::shared_ptr<Exchange>& exchange);
  /// Parses the request's body. False: it is answered.
  bool read(const CallPtr& call);
  /// Gives a request that was read its model, and then goes on with `then`: at once, or in another thread when the
  /// model is loaded. Not called if the request is answered (there is no such model) or its client has gone.
  void bind(const CallPtr& call, std::function<void()> then);
  /// Answers a request that was read and has its model.
  void answer(const CallPtr& call);
  /// Downloads wait for each other. False: the client has too many waiting.
  bool add_download(const std::string& client, std::function<void()> job) {
    return downloads_.add(client, 0, std::move(job));
  }
  void write_log(const Json& line);
  std::uint64_t lost_log_lines() const { return log_.lost(); }

  /// The models that may be asked for, the default one first, in the state in which they are.
  std::vector<ModelPool::Status> models() const;
  /// Of all models.
  SchedulerCounters counters();
  /// A model ends: what it has counted stays.
  void add_past(const std::string& name, const SchedulerCounters& counters);
  std::string metrics_text();
  /// Of a server with several: by a name with or without ":latest"; empty or "default": the default one.
  std::optional<ModelEntry> find_model(const std::string& name) const;
  std::vector<std::string> model_names() const;

  const ServerOptions& options;
  Metrics metrics{};
  std::function<std::size_t()> connections{};
  std::atomic<bool> draining{false};
  std::atomic<bool> ended{false};       ///< all connections have ended: nobody waits for anything
  ServedModel* only = nullptr;          ///< of a server with one model
  const ModelSource* source = nullptr;  ///< of a server with several
  ModelPool* pool = nullptr;            ///< of a server with several

 private:
  std::optional<ApiError> admit(Call& call, const Route* route);
  void count(Call& call);
  bool seated(const Call& call);
  bool local_host(std::string_view host) const;
  std::optional<std::size_t> key_of(const HttpRequest& request) const;
  void run(const CallPtr& call, const std::function<Expected<void>()>& work);
  bool origin_listed(std::string_view origin) const;
  Expected<void> bind_or_wait(const CallPtr& call, std::function<void()> then);
  void take(const CallPtr& call, ModelPool::Lease lease, const std::function<void()>& then);
  std::vector<Metrics::OfModel> counted_by_model(std::size_t& loaded);

  std::mutex clients_mutex_;
  std::map<std::string, int> unanswered_;  ///< requests that were begun and not answered, by client
  std::mutex past_mutex_;
  struct Past {
    SchedulerCounters sum{};                   ///< of the times that it was loaded before
    std::optional<SchedulerCounters> shown{};  ///< with what it had counted when /metrics was last asked
  };
  std::map<std::string, Past> past_;  ///< of models that were loaded, by name
  LogWriter log_;
  Lane downloads_{{.threads = 1, .jobs = 4}};  ///< last: its jobs use the rest
};

/// The refusal of a request for which seated() is false.
ApiError no_seat();

/// All routes (routes.cpp).
const std::vector<Route>& routes();

}  // namespace dllm::serve
