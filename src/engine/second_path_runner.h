#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "cpu/cpu_backend.h"
#include "decode/second_path.h"

namespace dllm {

/// Runs passes on a thread group of its own, which shares the weights of a backend and nothing else. Passes of several
/// sequences wait for each other.
class ThreadedPassRunner final : public PassRunner {
 public:
  /// `threads` >= 1, beside those of `backend`, which must outlive this. Errors: kUsage (threads), kResource.
  static Expected<std::unique_ptr<ThreadedPassRunner>> create(const CpuBackend& backend, int threads);
  /// Waits for what has been started.
  ~ThreadedPassRunner() override;

  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override;
  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override;

 private:
  explicit ThreadedPassRunner(std::unique_ptr<CpuBackend> backend) : backend_(std::move(backend)) {}
  void work();

  struct Job {
    SequenceStep step;
    std::promise<Expected<std::vector<Scores>>> promise;
  };
  std::unique_ptr<CpuBackend> backend_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dllm
