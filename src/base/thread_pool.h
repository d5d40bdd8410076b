#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/forks.h"

namespace dllm {

/// Fixed workers that share loops of independent tasks. The calling thread is worker 0, so a pool of 1 starts no
/// thread.
///
/// Determinism: a task sees only its index, and its result must not depend on which worker runs it; then results are
/// the same for every thread count. Tasks are assigned dynamically (an atomic counter), because a static split waits
/// for the slowest core when other programs use the machine.
///
/// Not re-entrant: one parallel_for at a time, from one thread at a time.
///
/// A child process of fork() has none of the workers. Its first loop starts new ones, or runs on the calling thread
/// alone if the system gives none. A loop that another thread of the parent was running is lost. Workers that a
/// background thread has started are replaced by the first loop of a thread that is not one, as priorities cannot be
/// raised.
class ThreadPool {
 public:
  /// `threads` >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(shares_.size()); }

  /// Calls body(task, worker) for every task in [0, tasks); returns when all are done. `worker` < size() identifies the
  /// scratch memory that a task may use. Exceptions from a body are fatal by design: kernels do not throw.
  void parallel_for(std::int64_t tasks, const std::function<void(std::int64_t task, int worker)>& body);

  /// Calls body(begin, end, worker) over [0, items) in pieces of at most `grain`. Each worker walks its own contiguous
  /// share upwards, so that memory is streamed in order and may be prefetched. A worker that has finished takes pieces
  /// from the far end of the largest remaining share.
  void parallel_ranges(std::int64_t items, std::int64_t grain,
                       const std::function<void(std::int64_t begin, std::int64_t end, int worker)>& body);

 private:
  /// The rest of a share, begin in the upper half; one word, so that both ends move by compare-and-swap.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> range{0};
  };
  bool take(std::size_t share, std::int64_t grain, bool front, std::int64_t& begin, std::int64_t& end);

  /// The workers, and the loop that they share with the caller.
  struct Crew {
    Crew(int threads, bool all);
    ~Crew();
    void work(int worker);
    void drain(int worker);

    std::vector<std::thread> threads;
    const std::function<void(std::int64_t, int)>* body = nullptr;
    std::int64_t tasks = 0;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> running{0};
    std::atomic<std::uint64_t> generation{0};
    std::atomic<bool> stop{false};
    const bool background;  ///< started by such a thread: see enter_background()
    std::mutex mutex;
    std::condition_variable wake;

   private:
    void end();
  };
  Crew& crew();

  std::vector<Share> shares_;
  OfThisProcess<Crew> crew_;
};

/// Number of CPUs that this process may use (affinity mask), at least 1.
int default_thread_count();

}  // namespace dllm
