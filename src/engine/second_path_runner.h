#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/backend.h"
#include "decode/loop/second_path.h"

namespace dllm {

/// Runs passes on its own thread, with a backend that may run concurrently with the sequences' own. Passes of several
/// sequences wait for each other.
class ThreadedPassRunner final : public PassRunner {
 public:
  /// Copies rows that `from` holds at these ascending positions, between caches of equal capacities.
  using CopyRows = std::function<void(const KvCache& from, KvCache& to, std::span<const Position> positions)>;

  /// Errors: kResource.
  static Expected<std::unique_ptr<ThreadedPassRunner>> create(std::unique_ptr<Backend> backend, CopyRows copy_rows);
  /// Waits for running passes.
  ~ThreadedPassRunner() override;

  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override;
  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override;

 private:
  ThreadedPassRunner(std::unique_ptr<Backend> backend, CopyRows copy_rows)
      : backend_(std::move(backend)), copy_rows_(std::move(copy_rows)) {}
  void work();

  struct Job {
    SequenceStep step;
    std::promise<Expected<std::vector<Scores>>> promise;
  };
  std::unique_ptr<Backend> backend_;
  CopyRows copy_rows_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dllm
