#include "engine/turns.h"

#include <algorithm>

#include "base/try.h"

namespace dllm {

/// In a child process: a new queue, because threads of the parent may wait in the old one, and its mutex may be locked.
Turns::Queue& Turns::queue() {
  if (!is_stale(queue_)) [[likely]]
    return *queue_;
  const std::lock_guard lock(renewal_);
  if (is_stale(queue_)) {
    const std::thread::id holder = queue_->holder;
    OfThisProcess<Queue> fresh(new Queue());
    if (holder == fork_survivor())
      fresh->holder = holder;  // it forked in a callback, and goes on
    else
      fresh->lost = queue_->lost || holder != std::thread::id();
    queue_ = std::move(fresh);
  }
  return *queue_;
}

Expected<void> Turns::wait(Queue& queue, std::uint64_t ticket) const {
  constexpr auto kBetweenPolls = std::chrono::milliseconds(50);
  for (;;) {
    {
      std::unique_lock lock(queue.mutex);
      const auto mine = [&] { return queue.holder == std::thread::id() && queue.waiting.front() == ticket; };
      if (queue.wake.wait_for(lock, kBetweenPolls, mine)) {
        queue.waiting.pop_front();
        queue.holder = std::this_thread::get_id();
        return {};
      }
    }
    DLLM_CHECK_OK(poll());
  }
}

Expected<void> Turns::poll() const {
  if (poll_ && !poll_()) return Error{ErrorCode::kCancelled, "the call was ended before its result", "", ""};
  return {};
}

Expected<Turns::Turn> Turns::take() {
  DLLM_CHECK_OK(poll());
  Queue& all = queue();
  std::uint64_t ticket = 0;
  {
    const std::lock_guard lock(all.mutex);
    if (all.lost)
      return Error{ErrorCode::kUsage, "another thread was computing with the model when this process was forked", "",
                   "load the model again in the child process"};
    if (all.holder == std::this_thread::get_id())
      return Error{ErrorCode::kUsage, "the model is asked from a callback of its own answer", "",
                   "this backend computes one answer at a time: ask after the answer, or load the model twice"};
    if (all.holder == std::thread::id() && all.waiting.empty()) {
      all.holder = std::this_thread::get_id();
      return Turn(*this);
    }
    all.waiting.push_back(ticket = all.next++);
  }
  struct Leave {
    Queue& queue;
    std::uint64_t ticket;
    ~Leave() {
      const std::lock_guard lock(queue.mutex);
      std::erase(queue.waiting, ticket);
      queue.wake.notify_all();
    }
  } leave{all, ticket};  // also if the poll throws
  DLLM_CHECK_OK(wait(all, ticket));
  return Turn(*this);
}

void Turns::end() {
  Queue& all = queue();
  const std::lock_guard lock(all.mutex);
  all.holder = {};
  all.wake.notify_all();
}

Expected<std::unique_ptr<KvCache>> SharedBackend::make_cache(Position capacity) {
  if (whole_) return backend_.make_cache(capacity);
  DLLM_TRY(const Turns::Turn turn, turns_.take());
  return backend_.make_cache(capacity);
}

Expected<std::vector<Scores>> SharedBackend::forward(std::span<const SequenceStep> batch) {
  if (whole_) {
    DLLM_CHECK_OK(turns_.poll());
    return backend_.forward(batch);
  }
  DLLM_TRY(const Turns::Turn turn, turns_.take());
  return backend_.forward(batch);
}

}  // namespace dllm
