#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <functional>

namespace dllm {
namespace {

// A step is some hundred short loops; parking after each costs a futex round trip (5-50 us). Workers therefore spin
// briefly first. Longer spinning would take the core from other processes and from hyper-threads.
constexpr auto kSpinBudget = std::chrono::microseconds(50);

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Done>
bool spin_until(Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinBudget;
  for (int i = 0;; ++i) {
    if (done()) return true;
    cpu_relax();
    if (i % 64 == 63 && std::chrono::steady_clock::now() > deadline) return done();
  }
}

void end_threads(std::vector<std::thread>& threads, std::mutex& mutex, std::atomic<bool>& stop,
                 std::condition_variable& wake) {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  wake.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  assert(threads >= 1);
  shares_ = std::vector<Share>(static_cast<std::size_t>(threads));
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (...) {
    // Destroying a running std::thread would end the process.
    end_threads(threads_, mutex_, stop_, wake_);
    throw;
  }
}

ThreadPool::~ThreadPool() { end_threads(threads_, mutex_, stop_, wake_); }

void ThreadPool::drain(int worker) {
  for (;;) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    (*body_)(task, worker);
  }
}

void ThreadPool::parallel_for(std::int64_t tasks, const std::function<void(std::int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (threads_.empty() || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  drain(0);
  // The workers still run tasks whose results the caller needs next: spin, then yield the core between checks.
  while (!spin_until([this] { return running_.load(std::memory_order_acquire) == 0; })) std::this_thread::yield();
}

bool ThreadPool::take(std::size_t share, std::int64_t grain, bool front, std::int64_t& begin, std::int64_t& end) {
  std::atomic<std::uint64_t>& range = shares_[share].range;
  std::uint64_t now = range.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t first = now >> 32, last = now & 0xffffffffu;
    if (first >= last) return false;
    const std::uint64_t count = std::min<std::uint64_t>(static_cast<std::uint64_t>(grain), last - first);
    const std::uint64_t left = front ? (first + count) << 32 | last : first << 32 | (last - count);
    if (!range.compare_exchange_weak(now, left, std::memory_order_relaxed)) continue;
    begin = static_cast<std::int64_t>(front ? first : last - count);
    end = begin + static_cast<std::int64_t>(count);
    return true;
  }
}

void ThreadPool::parallel_ranges(std::int64_t items, std::int64_t grain,
                                 const std::function<void(std::int64_t, std::int64_t, int)>& body) {
  assert(items < std::int64_t{1} << 32 && grain >= 1);
  if (items <= 0) return;
  if (threads_.empty() || items <= grain) return body(0, items, 0);
  const std::int64_t shares = size();
  for (std::int64_t i = 0; i < shares; ++i) {
    const auto first = static_cast<std::uint64_t>(items * i / shares);
    const auto last = static_cast<std::uint64_t>(items * (i + 1) / shares);
    shares_[static_cast<std::size_t>(i)].range.store(first << 32 | last, std::memory_order_relaxed);
  }
  const auto walk = [&](std::int64_t own, int worker) {
    std::int64_t begin = 0, end = 0;
    while (take(static_cast<std::size_t>(own), grain, true, begin, end)) body(begin, end, worker);
    for (;;) {
      std::size_t largest = 0;
      std::uint64_t most = 0;
      for (std::size_t i = 0; i < shares_.size(); ++i) {
        const std::uint64_t now = shares_[i].range.load(std::memory_order_relaxed);
        const std::uint64_t first = now >> 32, last = now & 0xffffffffu;
        if (last > first && last - first > most) most = last - first, largest = i;
      }
      if (most == 0) return;
      if (take(largest, grain, false, begin, end)) body(begin, end, worker);
    }
  };
  parallel_for(shares, std::cref(walk));  // a reference: a std::function would allocate to hold `walk`
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    const auto changed = [&] {
      return stop_.load(std::memory_order_acquire) || generation_.load(std::memory_order_acquire) != seen;
    };
    if (!spin_until(changed)) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, changed);
    }
    if (stop_.load(std::memory_order_acquire)) return;
    seen = generation_.load(std::memory_order_acquire);
    drain(worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

int default_thread_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace dllm
