#include "base/forks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace dllm {
namespace {

#ifndef __SANITIZE_THREAD__  // which supports no threads in children of processes with threads

TEST(Unforked, LocksAreFreeInChildren) {
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      const Unforked outer, inner;
      const std::lock_guard lock(mutex);
      for (volatile int i = 0; i < 10'000; i = i + 1) {
      }
    }
  });
  const std::uint32_t before = fork_count();
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool free = mutex.try_lock();
      if (free) mutex.unlock();
      const Unforked again;  // the child's own sections do not wait for those that its parent had
      ::_exit(free && fork_count() == before + 1 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  other.join();
  EXPECT_EQ(fork_count(), before);
}

#endif

}  // namespace
}  // namespace dllm
