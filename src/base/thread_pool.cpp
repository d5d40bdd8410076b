#include "base/thread_pool.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <functional>

#include "base/background.h"
#include "base/os_process.h"

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

}  // namespace

/// `all`: throws std::system_error if the system starts fewer threads; else those that it starts are the crew.
ThreadPool::Crew::Crew(int count, bool all) : background(in_background()) {
  threads.reserve(static_cast<std::size_t>(count - 1));
  try {
    for (int i = 1; i < count; ++i) threads.emplace_back([this, i] { work(i); });
  } catch (...) {
    if (!all) return;
    end();  // destroying a running std::thread would end the process
    throw;
  }
}

ThreadPool::Crew::~Crew() { end(); }

void ThreadPool::Crew::end() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  wake.notify_all();
  for (std::thread& thread : threads) thread.join();
}

ThreadPool::ThreadPool(int threads)
    : shares_(static_cast<std::size_t>(threads)), crew_(new Crew(threads, /*all=*/true)) {
  assert(threads >= 1);
}

ThreadPool::~ThreadPool() = default;

/// In a child process the pool works like before, so what the system refuses makes it slower instead of failing.
ThreadPool::Crew& ThreadPool::crew() {
  if (is_stale(crew_) || (crew_->background && !in_background())) [[unlikely]]
    crew_ = OfThisProcess<Crew>(new Crew(size(), /*all=*/false));
  return *crew_;
}

void ThreadPool::Crew::drain(int worker) {
  for (;;) {
    const std::int64_t task = next.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks) return;
    (*body)(task, worker);
  }
}

void ThreadPool::parallel_for(std::int64_t tasks, const std::function<void(std::int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (size() == 1 || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  Crew& all = crew();
  {
    std::lock_guard lock(all.mutex);
    all.body = &body;
    all.tasks = tasks;
    all.next.store(0, std::memory_order_relaxed);
    all.running.store(static_cast<int>(all.threads.size()), std::memory_order_relaxed);
    all.generation.fetch_add(1, std::memory_order_release);
  }
  all.wake.notify_all();
  all.drain(0);
  // The workers still run tasks whose results the caller needs next: spin, then yield the core between checks.
  while (!spin_until([&all] { return all.running.load(std::memory_order_acquire) == 0; })) std::this_thread::yield();
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
  if (size() == 1 || items <= grain) return body(0, items, 0);
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

void ThreadPool::Crew::work(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    const auto changed = [&] {
      return stop.load(std::memory_order_acquire) || generation.load(std::memory_order_acquire) != seen;
    };
    if (!spin_until(changed)) {
      std::unique_lock lock(mutex);
      wake.wait(lock, changed);
    }
    if (stop.load(std::memory_order_acquire)) return;
    seen = generation.load(std::memory_order_acquire);
    drain(worker);
    running.fetch_sub(1, std::memory_order_release);
  }
}

int default_thread_count() {
  if (const int allowed = allowed_processors(); allowed > 0) return allowed;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace dllm
