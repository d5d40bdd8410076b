#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "dllm/error.h"

namespace dllm::serve {

/// A model that a server can load.
struct ModelEntry {
  std::string name;           ///< what requests call it
  std::string path{};         ///< empty: the embedded model
  std::int64_t bytes = 0;     ///< of its files
  std::int64_t modified = 0;  ///< seconds since 1970
  // What its file says without being loaded; empty and 0: unknown.
  std::string architecture{}, type{}, chat_template{};
  std::int64_t context_length = 0, vocabulary = 0, parameters = 0;
};

/// What a pool keeps: a loaded model, and what belongs to it.
class PooledModel {
 public:
  virtual ~PooledModel() = default;
};

/// The models that a server has loaded. A model is loaded when it is asked for, once for all who ask meanwhile, and one
/// at a time, in a thread of its own, which also unloads them. If there is no room for one, that which nobody has used
/// for the longest time is unloaded; a model in use never is. Thread-safe.
class ModelPool {
 public:
  struct Limits {
    std::int32_t models = 0;               ///< loaded at once; 0: those that fit into memory
    std::optional<double> idle_seconds{};  ///< after which an unused model is unloaded; absent: never
    std::size_t waiting = 64;              ///< requests that may wait for one model
    /// After which a request that waits for room keeps further ones from the model that is to go: otherwise those who
    /// use it all the time would never let others in.
    double patience_seconds = 5;
  };
  struct Work {
    /// `go_on`: to be called now and then; false: the load is in vain.
    std::function<Expected<std::unique_ptr<PooledModel>>(const ModelEntry& entry, const std::function<bool()>& go_on)>
        load{};
    std::function<std::int64_t(const ModelEntry& entry)> memory_needed{};  ///< bytes
    std::function<std::optional<std::int64_t>()> free_memory{};            ///< bytes; nullopt: unknown
    /// "loaded", "unloaded" or "failed", and the seconds that took. Called in the pool's thread.
    std::function<void(const std::string& event, const std::string& name, double seconds)> log{};
  };
  /// While `busy` lives, the model stays loaded.
  struct Lease {
    PooledModel* model = nullptr;
    std::shared_ptr<void> busy{};
  };
  struct Waiter {
    /// Nobody waits any more: then() is not called. It may answer the one who waited; called now and then, outside of
    /// all locks.
    std::function<bool()> over{};
    /// At once in the caller's thread if the model is loaded, else in the pool's.
    std::function<void(Expected<Lease>)> then{};
  };
  enum class State : std::uint8_t { kAbsent, kLoading, kLoaded, kUnloading };
  struct Status {
    ModelEntry entry;
    State state = State::kAbsent;
    std::optional<double> seconds_left{};  ///< until it is unloaded if nobody uses it; absent: no limit
    Lease lease{};                         ///< of a loaded one; does not count as use
  };

  ModelPool(Limits limits, Work work);
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  /// `keep_seconds`: how long the model stays after its last use, instead of Limits::idle_seconds, from now on;
  /// negative: for ever. Errors given to the waiter: kResource (it does not fit; `where` kQueueFull: too many wait),
  /// kCancelled (stop()), those of the load.
  void acquire(const ModelEntry& entry, std::optional<double> keep_seconds, Waiter waiter);
  /// Adds a model that is loaded.
  void add(const ModelEntry& entry, std::unique_ptr<PooledModel> model);
  /// Unloads the model as soon as nobody uses it; requests that come before that wait until it is loaded again. False:
  /// it is not loaded.
  bool unload(const std::string& name);
  /// Those that are loaded or in transition, by name.
  std::vector<Status> states();
  /// Ends a load in progress, answers all who wait, and loads nothing any more. Loaded models stay until the end.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Waiter waiter;
    Clock::time_point since = Clock::now();
  };
  struct Slot {
    ModelEntry entry;
    State state = State::kAbsent;
    std::unique_ptr<PooledModel> model{};
    int busy = 0, seen = 0;  ///< leases of users, and of states()
    bool leaving = false;    ///< no further use before it was unloaded
    Clock::time_point used{};
    std::optional<double> keep_seconds{};
    std::deque<std::shared_ptr<Waiting>> waiting{};
  };
  enum class Room : std::uint8_t { kReady, kWait, kNever };

  void run(const std::stop_token& stop);
  void sweep();
  bool unload_due();
  bool load_next(const std::stop_token& stop);
  std::optional<ModelEntry> next_entry(Clock::time_point& since);
  Room make_room(const ModelEntry& entry, bool patient);
  void finish_load(const ModelEntry& entry, Expected<std::unique_ptr<PooledModel>> model, double seconds);
  void fail(const std::string& name, const Error& error);
  void drop(const std::string& name);
  Lease lease(Slot& slot, bool use);
  void release(Slot& slot, bool use);
  std::optional<double> seconds_left(const Slot& slot) const;
  Slot* least_recent(bool idle);
  static bool is_idle(const Slot& slot) { return slot.state == State::kLoaded && slot.busy == 0 && slot.seen == 0; }

  const Limits limits_;
  const Work work_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool changed_ = false, stopped_ = false;
  std::map<std::string, Slot> slots_;  ///< those that are not kAbsent, or have someone waiting
  std::jthread thread_;                ///< last: it uses the other members
};

}  // namespace dllm::serve
