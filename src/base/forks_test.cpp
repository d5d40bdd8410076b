#include "base/forks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace dllm {
namespace {

#ifndef __SANITIZE_THREAD__  // which supports no threads in children of processes with threads

bool ends_well(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Unforked, LocksAreFreeInChildren) {
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      const Unforked outer, inner;
      const std::lock_guard lock(mutex);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  const std::uint32_t before = fork_count();
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(100);
      const bool free = mutex.try_lock();
      if (free) mutex.unlock();
      // Neither the child's own sections nor its forks wait for its parent's sections.
      {
        const Unforked again;
      }
      const pid_t grandchild = ::fork();
      if (grandchild == 0) ::_exit(0);
      ::_exit(free && fork_count() == before + 1 && ends_well(grandchild) ? 0 : 1);
    }
    EXPECT_TRUE(ends_well(child)) << i;
  }
  stop = true;
  other.join();
  EXPECT_EQ(fork_count(), before);
}

#endif

}  // namespace
}  // namespace dllm
