#include "serve/server.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <ostream>
#include <thread>

#include "base/service_manager.h"
#include "base/try.h"
#include "serve/api.h"
#include "serve/file_watch.h"
#include "serve/lane.h"
#include "serve/structure.h"

namespace dllm::serve {
namespace {

/// Where the work before generation is done. The threads of connections and of the scheduler never wait for it.
/// Requests whose structure must be compiled have a lane of their own: it takes the longest.
class Work {
 public:
  explicit Work(const ServerOptions& options)
      : compile_({.threads = 1, .jobs = 32, .bytes = bytes_of(options)}),
        read_({.threads = 2,
               .jobs = static_cast<std::size_t>(std::max(64, options.scheduling.parallel + options.scheduling.queue)),
               .bytes = bytes_of(options)}) {}

  void add(Api& api, const std::shared_ptr<Exchange>& exchange) {
    const CallPtr call = api.begin(exchange);
    if (!call) return;
    queue(read_, call, [this, &api, call] {
      if (!api.read(call)) return;
      if (!may_compile(call->body)) return api.answer(call);
      queue(compile_, call, [&api, call] { api.answer(call); });
    });
  }

 private:
  static std::size_t bytes_of(const ServerOptions& options) { return 16 * options.http.body; }
  static void queue(Lane& lane, const CallPtr& call, std::function<void()> job) {
    if (!lane.add(call->client, call->exchange->request().body.size(), std::move(job)))
      call->fail(ApiError{429, "too many requests of this client wait to be read", "", "queue_full"});
  }

  Lane compile_, read_;  ///< in this order: reading adds to the other
};

/// Calls `end` unless it is stopped in time.
class Alarm {
 public:
  Alarm(double seconds, std::function<void()> end)
      : thread_([this, seconds, ring = std::move(end)](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          wake_.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
          if (!stop.stop_requested()) ring();
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

/// Why the server ends; the first reason counts. Thread-safe.
class Failure {
 public:
  void set(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  Expected<void> result() {
    const std::lock_guard lock(mutex_);
    if (error_) return *error_;
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

std::unique_ptr<FileWatch> watch_files(Api& api, std::function<void()> lost) {
  const auto log = [&api](const std::string& event, const std::string& path) {
    Json line = {{"event", event}};
    if (!path.empty()) line["file"] = path;
    api.write_log(line);
  };
  return std::make_unique<FileWatch>(ModelFiles(api.model), log, std::move(lost));
}

constexpr double kNotice = 2;  ///< seconds between the failure of /health and the end

HttpResponse refusal(Api& api, int status, std::string message) {
  api.metrics.answered("other", status, 0);
  api.write_log({{"refused", status}, {"error", message}});
  return error_response(ApiError{status, std::move(message), "", ""}, Dialect::kOpenAi);
}

}  // namespace

Expected<void> serve(const LanguageModel& model, const ServerOptions& options, LogSink log,
                     const std::function<void(std::uint16_t)>& on_ready) {
  DLLM_TRY(const ResolvedOptions usable, model.resolve(options.defaults));
  Api* api = nullptr;
  HttpServer* http = nullptr;
  std::unique_ptr<Work> work;
  std::unique_ptr<Alarm> alarm;
  HttpServer::Options listening{
      .host = options.host, .port = options.port, .socket = options.socket, .limits = options.http};
  listening.handler = [&](const std::shared_ptr<Exchange>& exchange) { work->add(*api, exchange); };
  listening.refusal = [&](int status, std::string message) { return refusal(*api, status, std::move(message)); };
  listening.on_signal = [&](bool again) {
    if (again) return http->abort();
    api->write_log({{"event", "shutting down"}, {"running", api->scheduler.counters().running}});
    api->draining = true;
    notify_service_manager("STOPPING=1");
    alarm = std::make_unique<Alarm>(options.drain_seconds, [&] { http->abort(); });
    http->drain();
  };
  DLLM_TRY(const auto server, HttpServer::listen(std::move(listening)));
  http = server.get();
  DLLM_TRY(auto scheduler, Scheduler::create(model, options.scheduling));
  Api shared(model, *scheduler, options, std::move(log));
  shared.connections = [&] { return server->connections(); };
  api = &shared;
  Failure failure;
  std::unique_ptr<Alarm> end;
  const auto lost = [&] {
    failure.set({ErrorCode::kIo, "the model's file has changed while it was served", options.model_path,
                 "to replace a model, write a new file and rename it, then start the server again"});
    // Proxies that ask /health twice a second see that it fails, and send their requests elsewhere.
    end = std::make_unique<Alarm>(kNotice, [&] { http->abort(); });
  };
  auto watch = watch_files(shared, lost);
  shared.unfit = [&] { return watch->unfit(); };
  {
    std::jthread rounds([&](const std::stop_token& stop) {
      try {
        scheduler->run(stop);
      } catch (const std::bad_alloc&) {
        failure.set({ErrorCode::kResource, "out of memory", "", "fewer requests at once (--parallel) may fit"});
        http->abort();
      }
    });
    work = std::make_unique<Work>(options);
    if (on_ready) on_ready(server->port());
    notify_service_manager("READY=1\nSTATUS=serving requests");
    server->run();
    watch.reset();
    work.reset();
  }
  alarm.reset();
  end.reset();
  // Cancelled requests send their answers through the server and the settings, so these are destroyed last.
  scheduler.reset();
  return failure.result();
}

}  // namespace dllm::serve
