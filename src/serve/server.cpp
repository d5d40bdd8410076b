#include "serve/server.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <ostream>
#include <thread>

#include "base/try.h"
#include "serve/api.h"

namespace dllm::serve {
namespace {

/// Threads that read requests, so that parsing and tokenizing a long one does not delay the other answers.
class Workers {
 public:
  explicit Workers(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    wake_.notify_one();
  }

 private:
  void work(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [this] { return !jobs_.empty(); })) return;
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::jthread> threads_;  ///< last: they use the other members
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

HttpResponse refusal(Api& api, int status, std::string message) {
  api.metrics.answered("other", status, 0);
  api.write_log({{"refused", status}, {"error", message}});
  return error_response(ApiError{status, std::move(message), "", ""}, Dialect::kOpenAi);
}

}  // namespace

Expected<void> serve(const LanguageModel& model, const ServerOptions& options, std::ostream& log,
                     const std::function<void(std::uint16_t)>& on_ready) {
  DLLM_TRY(const ResolvedOptions usable, model.resolve(options.defaults));
  Api* api = nullptr;
  HttpServer* http = nullptr;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Alarm> alarm;
  HttpServer::Options listening{.host = options.host, .port = options.port, .limits = options.http};
  listening.handler = [&](std::shared_ptr<Exchange> exchange) {
    workers->add([&api, exchange = std::move(exchange)] { api->handle(exchange); });
  };
  listening.refusal = [&](int status, std::string message) { return refusal(*api, status, std::move(message)); };
  listening.on_signal = [&](bool again) {
    if (again) return http->abort();
    api->write_log({{"event", "shutting down"}, {"running", api->scheduler.counters().running}});
    api->draining = true;
    alarm = std::make_unique<Alarm>(options.drain_seconds, [&] { http->abort(); });
    http->drain();
  };
  DLLM_TRY(const auto server, HttpServer::listen(std::move(listening)));
  http = server.get();
  DLLM_TRY(auto scheduler, Scheduler::create(model, options.scheduling));
  Api shared(model, *scheduler, options, log);
  shared.connections = [&] { return server->connections(); };
  api = &shared;
  std::optional<Error> failure;
  {
    std::jthread rounds([&](const std::stop_token& stop) {
      try {
        scheduler->run(stop);
      } catch (const std::bad_alloc&) {
        failure = Error{ErrorCode::kResource, "out of memory", "", "fewer requests at once (--parallel) may fit"};
        http->abort();
      }
    });
    workers = std::make_unique<Workers>(2);
    if (on_ready) on_ready(server->port());
    server->run();
    workers.reset();
  }
  alarm.reset();
  // Cancelled requests send their answers through the server and the settings, so these are destroyed last.
  scheduler.reset();
  if (failure) return *failure;
  return {};
}

}  // namespace dllm::serve
