#include "base/forks.h"

#include <pthread.h>

#include <atomic>

namespace dllm {
namespace forks {
namespace {

// Constants at first, so that no thread ever initializes them while another forks.
constinit std::atomic<std::uint32_t> count{0};
constinit std::atomic<int> sections{0};  ///< threads in an Unforked
constinit std::atomic<int> forking{0};   ///< threads in fork()
constinit thread_local int depth = 0;    ///< sections of this thread, one inside another
std::atomic<std::thread::id> survivor{};

void prepare() {
  forking.fetch_add(1);
  while (sections.load() > 0) std::this_thread::yield();
}

void end_in_parent() { forking.fetch_sub(1); }

/// Run by the only thread of a child process, before it returns from fork().
void end_in_child() {
  forking.store(0);
  sections.store(0);  // another thread may have counted its section, and not yet taken that back
  survivor.store(std::this_thread::get_id(), std::memory_order_relaxed);
  count.fetch_add(1, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = ::pthread_atfork(&prepare, &end_in_parent, &end_in_child);

}  // namespace
}  // namespace forks

// The process id would do, but it is a system call, and loops of some microseconds ask for the count.
std::uint32_t fork_count() { return forks::count.load(std::memory_order_relaxed); }

std::thread::id fork_survivor() { return forks::survivor.load(std::memory_order_relaxed); }

Unforked::Unforked() {
  if (forks::depth++ > 0) return;
  for (;;) {
    forks::sections.fetch_add(1);
    if (forks::forking.load() == 0) return;
    forks::sections.fetch_sub(1);
    while (forks::forking.load() > 0) std::this_thread::yield();
  }
}

Unforked::~Unforked() {
  if (--forks::depth == 0) forks::sections.fetch_sub(1);
}

}  // namespace dllm
