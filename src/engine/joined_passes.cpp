#include "engine/joined_passes.h"

#include <algorithm>
#include <new>
#include <utility>

namespace dllm {

class JoinedPasses::Runner final : public PassRunner {
 public:
  explicit Runner(JoinedPasses& passes) : passes_(passes) {}

  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override {
    Waiting waiting{std::move(step), {}};
    auto future = waiting.promise.get_future();
    const std::lock_guard lock(passes_.mutex_);
    passes_.waiting_.push_back(std::move(waiting));
    return future;
  }
  void wait_for(const KvCache& cache) override { passes_.run_for(cache); }
  void drop(const KvCache& cache) override {
    const std::lock_guard lock(passes_.mutex_);
    std::erase_if(passes_.waiting_, [&](const Waiting& one) { return one.step.cache == &cache; });
  }
  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override {
    const std::lock_guard lock(passes_.passes_);
    to.copy_rows(from, rows);
  }

 private:
  JoinedPasses& passes_;
};

std::unique_ptr<PassRunner> JoinedPasses::second_path() { return std::make_unique<Runner>(*this); }

Expected<std::unique_ptr<KvCache>> JoinedPasses::make_cache(Position capacity) {
  const std::lock_guard lock(passes_);
  return backend_->make_cache(capacity);
}

std::deque<JoinedPasses::Waiting> JoinedPasses::take_waiting() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

/// With passes_ locked. The scores of `batch`; those of `waiting` go to who waits.
Expected<std::vector<Scores>> JoinedPasses::run(std::span<const SequenceStep> batch, std::deque<Waiting> waiting) {
  if (waiting.empty()) return backend_->forward(batch);
  auto scores = [&] {
    try {
      std::vector<SequenceStep> all(batch.begin(), batch.end());
      for (Waiting& one : waiting) all.push_back(std::move(one.step));
      return backend_->forward(all);
    } catch (const std::bad_alloc&) {
      // A promise without a result throws at who waits for it, on another thread.
      for (Waiting& one : waiting)
        one.promise.set_value(
            Error{ErrorCode::kResource, "out of memory in a forward pass", "", "use fewer rows per step"});
      throw;
    }
  }();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (!scores) {
      waiting[i].promise.set_value(scores.error());
      continue;
    }
    std::vector<Scores> own;
    own.push_back(std::move((*scores)[batch.size() + i]));
    waiting[i].promise.set_value(std::move(own));
  }
  if (scores) scores->resize(batch.size());
  return scores;
}

Expected<std::vector<Scores>> JoinedPasses::forward(std::span<const SequenceStep> batch) {
  const std::lock_guard lock(passes_);
  return run(batch, take_waiting());
}

/// The passes that wait, if this cache's is one of them: no other pass came after it.
void JoinedPasses::run_for(const KvCache& cache) {
  const std::lock_guard lock(passes_);
  {
    const std::lock_guard own(mutex_);
    if (std::ranges::none_of(waiting_, [&](const Waiting& one) { return one.step.cache == &cache; })) return;
  }
  (void)run({}, take_waiting());
}

}  // namespace dllm
