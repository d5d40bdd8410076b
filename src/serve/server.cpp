#include "serve/server.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ostream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/background.h"
#include "base/free_memory.h"
#include "base/service_manager.h"
#include "base/try.h"
#include "serve/api.h"
#include "serve/images.h"
#include "serve/lane.h"
#include "serve/model_pool.h"
#include "serve/served_model.h"
#include "serve/structure.h"

namespace dllm::serve {
namespace {

/// Where the work before generation is done. The threads of connections and of the scheduler never wait for it.
/// Requests whose structure must be compiled have a lane of their own, and so have those with images: each of these
/// takes longer than everything else.
class Work {
 public:
  explicit Work(const ServerOptions& options)
      : compile_({.threads = 1, .jobs = 32, .bytes = bytes_of(options)}),
        see_({.threads = 1, .jobs = 32, .bytes = bytes_of(options)}),
        read_({.threads = 2,
               .jobs = static_cast<std::size_t>(std::max(64, options.scheduling.parallel + options.scheduling.queue)),
               .bytes = bytes_of(options)}) {}

  void add(Api& api, const std::shared_ptr<Exchange>& exchange) {
    const CallPtr call = api.begin(exchange);
    if (!call) return;
    queue(read_, call, [this, &api, call] {
      if (!api.read(call)) return;
      api.bind(call, [this, &api, call, here = std::this_thread::get_id()] {
        if (std::this_thread::get_id() == here) return answer(api, call);
        // The thread that has loaded the model goes on with the next one.
        queue(read_, call, [this, &api, call] { answer(api, call); });
      });
    });
  }

 private:
  static std::size_t bytes_of(const ServerOptions& options) { return 16 * options.http.body; }
  void answer(Api& api, const CallPtr& call) {
    const bool sees = call->bound != nullptr && call->bound->model.reads_images() && may_show_images(call->body);
    if (!sees && !may_compile(call->body)) return api.answer(call);
    queue(sees ? see_ : compile_, call, [&api, call] { api.answer(call); });
  }
  static void queue(Lane& lane, const CallPtr& call, std::function<void()> job) {
    if (!lane.add(call->client, call->exchange->request().body.size(), std::move(job)))
      call->fail(ApiError{429, "too many requests of this client wait to be read", "", "queue_full"});
  }

  Lane compile_, see_, read_;  ///< in this order: reading adds to the others
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

constexpr double kNotice = 2;  ///< seconds between the failure of /health and the end

HttpResponse refusal(Api& api, int status, std::string message) {
  api.metrics.answered("other", status, 0);
  api.write_log({{"refused", status}, {"error", message}});
  return error_response(ApiError{status, std::move(message), "", ""}, Dialect::kOpenAi);
}

/// What servers with one and with several models have in common.
class Host {
 public:
  explicit Host(const ServerOptions& options) : options_(options) {}

  Expected<void> listen(LogSink log) {
    HttpServer::Options listening{
        .host = options_.host, .port = options_.port, .socket = options_.socket, .limits = options_.http};
    listening.handler = [this](const std::shared_ptr<Exchange>& exchange) { work_->add(*api_, exchange); };
    listening.refusal = [this](int status, std::string message) { return refusal(*api_, status, std::move(message)); };
    listening.on_signal = [this](bool again) { on_signal(again); };
    DLLM_TRY(server_, HttpServer::listen(std::move(listening)));
    api_ = std::make_unique<Api>(options_, std::move(log));
    api_->connections = [this] { return server_->connections(); };
    return {};
  }

  Api& api() { return *api_; }

  /// Until drained or aborted. `end`: afterwards, before the lanes end.
  void run(const std::function<void(std::uint16_t)>& on_ready, const std::function<void()>& end) {
    work_ = std::make_unique<Work>(options_);
    if (on_ready) on_ready(server_->port());
    notify_service_manager("READY=1\nSTATUS=serving requests");
    server_->run();
    api_->draining = true;  // downloads end, too
    api_->ended = true;
    if (end) end();
    work_.reset();
  }

  /// No alarm rings any more.
  Expected<void> result() {
    alarm_.reset();
    notice_.reset();
    return failure_.result();
  }

  void out_of_memory() {
    failure_.set({ErrorCode::kResource, "out of memory", "", "fewer requests at once (--parallel) may fit"});
    server_->abort();
  }
  void lost(const std::string& path) {
    failure_.set({ErrorCode::kIo, "the model's file has changed while it was served", path,
                  "to replace a model, write a new file and rename it, then start the server again"});
    // Proxies that ask /health twice a second see that it fails, and send their requests elsewhere.
    end_soon([this] { server_->abort(); });
  }
  /// Requests have ended with the error. Those who read their answers may finish, and /health says why.
  void device_lost(const std::string& why) {
    failure_.set({ErrorCode::kResource, why, "--backend", "the kernel's log may say more; start the server again"});
    api_->write_log({{"event", "device lost"}, {"error", why}});
    end_soon([this] {
      drain();
      server_->drain();
    });
  }
  void log_ranks(const RanksEvent& event) {
    Json line = {{"event", event.kind == RanksEvent::Kind::kLost       ? "rank lost"
                           : event.kind == RanksEvent::Kind::kReturned ? "rank returned"
                                                                       : "ranks complete"},
                 {"ranks", event.status.ranks},
                 {"of", event.status.wanted}};
    if (!event.status.failure.empty()) line["error"] = event.status.failure;
    api_->write_log(line);
  }
  void log_file(const std::string& event, const std::string& path) {
    Json line = {{"event", event}};
    if (!path.empty()) line["file"] = path;
    api_->write_log(line);
  }

 private:
  /// The files and the device are watched in threads of their own, and both may be lost; the first loss counts.
  void end_soon(std::function<void()> end) {
    const std::lock_guard lock(notice_mutex_);
    if (!notice_) notice_ = std::make_unique<Alarm>(kNotice, std::move(end));
  }
  void on_signal(bool again) {
    if (again) return server_->abort();
    drain();
    alarm_ = std::make_unique<Alarm>(options_.drain_seconds, [this] { server_->abort(); });
    server_->drain();
  }
  void drain() {
    api_->write_log({{"event", "shutting down"}, {"running", api_->counters().running}});
    api_->draining = true;
    notify_service_manager("STOPPING=1");
  }

  const ServerOptions& options_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<Work> work_;
  std::mutex notice_mutex_;
  std::unique_ptr<Alarm> alarm_, notice_;
  Failure failure_;
};

using LoadedModel = Expected<std::unique_ptr<PooledModel>>;

/// A loaded model of a server with several, which begins to answer.
LoadedModel begin_model(Host& host, const ServerOptions& options, const ModelEntry& entry, LanguageModel model) {
  DLLM_TRY(const ResolvedOptions usable, model.resolve(options.defaults));
  ServedModel::Events events;
  events.file = [&host](const std::string& event, const std::string& path) { host.log_file(event, path); };
  events.lost = [&host, name = entry.name] { host.api().pool->unload(name); };
  events.out_of_memory = [&host] { host.out_of_memory(); };
  events.ranks = [&host](const RanksEvent& event) { host.log_ranks(event); };
  events.device_lost = [&host, name = entry.name](const std::string& why) {
    host.log_file(why, "");
    host.api().pool->unload(name);
  };
  events.ended = [&host, name = entry.name](const SchedulerCounters& counters) { host.api().add_past(name, counters); };
  events.after_loss = "it is loaded again";
  DLLM_TRY(auto served, ServedModel::create(std::make_shared<const LanguageModel>(std::move(model)), options,
                                            {entry.name}, entry.path, std::move(events)));
  served->start();
  return std::unique_ptr<PooledModel>(std::move(served));
}

/// In a thread in the background, as loading keeps all cores busy, and other models answer meanwhile.
Expected<LanguageModel> load_in_background(const ModelSource& source, const ModelEntry& entry,
                                           const std::function<bool()>& go_on) {
  std::optional<Expected<LanguageModel>> loaded;
  std::jthread([&] {
    enter_background();
    try {
      loaded = source.load(entry, go_on);
    } catch (const std::bad_alloc&) {
      loaded = Error{ErrorCode::kResource, "out of memory", entry.path, ""};
    } catch (const std::exception& failure) {  // of a thread that cannot be started, or of a library
      loaded = Error{ErrorCode::kResource, failure.what(), entry.path, ""};
    }
  }).join();
  return *std::move(loaded);
}

LoadedModel load_model(Host& host, const ServerOptions& options, const ModelSource& source, const ModelEntry& entry,
                       const std::function<bool()>& go_on) {
  try {
    DLLM_TRY(LanguageModel model, load_in_background(source, entry, go_on));
    return begin_model(host, options, entry, std::move(model));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "out of memory", entry.path, ""};
  } catch (const std::system_error& failure) {
    return Error{ErrorCode::kResource, failure.what(), entry.path, ""};
  }
}

}  // namespace

Expected<void> serve(const LanguageModel& model, const ServerOptions& options, LogSink log,
                     const std::function<void(std::uint16_t)>& on_ready) {
  DLLM_TRY(const ResolvedOptions usable, model.resolve(options.defaults));
  Host host(options);
  DLLM_CHECK_OK(host.listen(std::move(log)));
  ServedModel::Events events;
  events.file = [&host](const std::string& event, const std::string& path) { host.log_file(event, path); };
  events.lost = [&] { host.lost(options.model_path); };
  events.out_of_memory = [&host] { host.out_of_memory(); };
  events.ranks = [&host](const RanksEvent& event) { host.log_ranks(event); };
  events.device_lost = [&host](const std::string& why) { host.device_lost(why); };
  events.after_loss = "the server ends";
  DLLM_TRY(const auto served,
           ServedModel::create(borrowed(model), options, options.names, options.model_path, std::move(events)));
  host.api().only = served.get();
  served->start();
  host.run(on_ready, nullptr);
  served->stop();
  return host.result();
}

Expected<void> serve_models(const ModelSource& source, const ModelPool::Limits& limits, std::optional<FirstModel> first,
                            const ServerOptions& options, LogSink log,
                            const std::function<void(std::uint16_t)>& on_ready) {
  Host host(options);
  DLLM_CHECK_OK(host.listen(std::move(log)));
  ModelPool::Work work;
  work.load = [&](const ModelEntry& entry, const std::function<bool()>& go_on) {
    return load_model(host, options, source, entry, go_on);
  };
  work.memory_needed = source.memory_needed;
  work.free_memory = [] { return free_memory(); };
  work.log = [&host](const std::string& event, const std::string& name, double seconds) {
    host.api().metrics.counted(name, event);
    host.api().write_log({{"event", event}, {"model", name}, {"seconds", seconds}});
  };
  ModelPool pool(limits, std::move(work));
  host.api().source = &source;
  host.api().pool = &pool;
  if (first) {
    DLLM_TRY(auto begun, begin_model(host, options, first->entry, std::move(first->model)));
    pool.add(first->entry, std::move(begun));
  }
  // Those who wait for a model are answered while there are lanes for what follows.
  host.run(on_ready, [&pool] { pool.stop(); });
  return host.result();
}

}  // namespace dllm::serve
