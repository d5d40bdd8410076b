#include "base/forks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/testing/child_process.h"

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
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  const std::uint32_t before = fork_count();
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(test::in_child([&] {
      const bool free = mutex.try_lock();
      if (free) mutex.unlock();
      // Neither the child's own sections nor its forks wait for its parent's sections.
      {
        const Unforked again;
      }
      return free && fork_count() == before + 1 && test::in_child([] { return true; });
    })) << i;
  }
  stop = true;
  other.join();
  EXPECT_EQ(fork_count(), before);
}

#endif

}  // namespace
}  // namespace dllm
