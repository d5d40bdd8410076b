#include "engine/second_path_runner.h"

#include <fmt/format.h>

#include <system_error>

namespace dllm {

Expected<std::unique_ptr<ThreadedPassRunner>> ThreadedPassRunner::create(std::unique_ptr<Backend> backend,
                                                                         CopyRows copy_rows) {
  std::unique_ptr<ThreadedPassRunner> runner(new ThreadedPassRunner(std::move(backend), std::move(copy_rows)));
  try {
    runner->thread_ = std::thread([one = runner.get()] { one->work(); });
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResource, fmt::format("cannot start a thread: {}", error.what()), "--refresh-path",
                 "use the folded path"};
  }
  return runner;
}

ThreadedPassRunner::~ThreadedPassRunner() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::future<Expected<std::vector<Scores>>> ThreadedPassRunner::start(SequenceStep step) {
  Job job{std::move(step), {}};
  auto future = job.promise.get_future();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_all();
  return future;
}

void ThreadedPassRunner::copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) {
  copy_rows_(from, to, rows);
}

void ThreadedPassRunner::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.promise.set_value(backend_->forward({&job.step, 1}));
  }
}

}  // namespace dllm
