#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/forks.h"
#include "dllm/error.h"

namespace dllm {

/// Who computes on a backend, which runs one forward pass at a time. Those who wait get their turns in the order in
/// which they came: with a mutex, a thread that asks again at once would starve the others. Thread-safe.
class Turns {
 public:
  /// Called in the thread that asks for a turn: before it, and now and then while it waits. False ends the wait. May
  /// throw.
  using Poll = std::function<bool()>;

  explicit Turns(Poll poll = {}) : poll_(std::move(poll)), queue_(new Queue()) {}

  /// A turn; it ends with the object.
  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(&turns) {}
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->end();
    }

   private:
    Turns* turns_;
  };

  /// Waits for a turn. Errors: kUsage, if this thread has it already (the model is called from its own callback), or if
  /// another thread of the parent had it when it forked this process; kCancelled by Poll.
  Expected<Turn> take();
  /// For a pass within a longer turn. Errors: kCancelled by Poll.
  Expected<void> poll() const;

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::uint64_t> waiting;  ///< tickets
    std::uint64_t next = 0;             ///< ticket
    std::thread::id holder;             ///< none: nobody
    bool lost = false;                  ///< with the thread that held it
  };
  Queue& queue();
  Expected<void> wait(Queue& queue, std::uint64_t ticket) const;
  void end();

  Poll poll_;
  std::mutex renewal_;  ///< of the queue, by the threads of a child process
  OfThisProcess<Queue> queue_;
};

/// A backend whose passes are turns. Between them callbacks run, decoders decide, and others compute.
class SharedBackend final : public Backend {
 public:
  /// Both are borrowed. `whole`: nobody else computes until the object's end.
  SharedBackend(Backend& backend, Turns& turns, std::optional<Turns::Turn> whole)
      : backend_(backend), turns_(turns), whole_(std::move(whole)) {}

  const ModelDesc& desc() const override { return backend_.desc(); }
  bool runs_shadows() const override { return backend_.runs_shadows(); }
  bool runs_branches() const override { return backend_.runs_branches(); }
  bool runs_soft_tokens() const override { return backend_.runs_soft_tokens(); }
  bool takes_embeddings() const override { return backend_.takes_embeddings(); }
  bool runs_lead() const override { return backend_.runs_lead(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  Backend& backend_;
  Turns& turns_;
  std::optional<Turns::Turn> whole_;
};

}  // namespace dllm
