#include "base/forks.h"

#include <pthread.h>

#include <atomic>

namespace dllm {
namespace {

/// Written by the only thread of a child process, before it returns from fork().
struct Forks {
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::thread::id> survivor{};
};

Forks& forks() {
  static Forks of_this_process;
  return of_this_process;
}

void count_fork() {
  forks().survivor.store(std::this_thread::get_id(), std::memory_order_relaxed);
  forks().count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

std::uint32_t fork_count() {
  // The process id would do, but it is a system call, and loops of some microseconds ask for it.
  static const Forks& counted = []() -> const Forks& {
    const Forks& all = forks();
    ::pthread_atfork(nullptr, nullptr, &count_fork);
    return all;
  }();
  return counted.count.load(std::memory_order_relaxed);
}

std::thread::id fork_survivor() { return forks().survivor.load(std::memory_order_relaxed); }

}  // namespace dllm
