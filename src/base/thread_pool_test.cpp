#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include "base/background.h"
#include "base/testing/child_process.h"

namespace dllm {
namespace {

TEST(ThreadPool, ThrowsWhereTheSystemGivesFewer) {
  // Stacks of a quarter of the address space: the first one or two threads start, the others do not.
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 45), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(ThreadPool(8), std::system_error);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(ThreadPool(8).size(), 8);
}

TEST(ThreadPool, EveryTaskRunsExactlyOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int tasks : {0, 1, 2, 5, 1000}) {
      std::vector<int> hits(static_cast<std::size_t>(tasks), 0);
      pool.parallel_for(tasks, [&](std::int64_t task, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++hits[static_cast<std::size_t>(task)];
      });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), tasks);
      for (int hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(8, 0);
  for (int loop = 0; loop < 2000; ++loop)
    pool.parallel_for(8, [&](std::int64_t task, int) { sums[static_cast<std::size_t>(task)] += task; });
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], static_cast<std::int64_t>(i) * 2000);
}

TEST(ThreadPool, RangesCoverEveryItemOnceInPiecesOfAtMostTheGrain) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (std::int64_t items : {0, 1, 2, 5, 64, 1000})
      for (std::int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(items));
        std::atomic<bool> sane{true};
        pool.parallel_ranges(items, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
          const bool whole = threads == 1 && begin == 0 && end == items;
          if (begin >= end || (end - begin > grain && !whole) || worker < 0 || worker >= threads) sane = false;
          for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)].fetch_add(1);
        });
        EXPECT_TRUE(sane) << threads << " threads, " << items << " items, grain " << grain;
        for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
      }
  }
}

TEST(ThreadPool, RangesOfASlowWorkerAreTakenOver) {
  ThreadPool pool(3);
  std::vector<int> owner(300, -1);
  std::atomic<bool> release{false};
  std::atomic<int> left{299};
  // The first item waits until all others are done: its worker cannot do the rest of its own share.
  pool.parallel_ranges(300, 1, [&](std::int64_t begin, std::int64_t, int worker) {
    owner[static_cast<std::size_t>(begin)] = worker;
    if (begin == 0) {
      while (!release) std::this_thread::yield();
    } else if (--left == 0) {
      release = true;
    }
  });
  for (int worker : owner) EXPECT_GE(worker, 0);
}

int own_priority() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

/// A model that is loaded in the background answers in the foreground.
TEST(ThreadPool, WorkersOfTheBackgroundStayThere) {
  const int mine = own_priority();
  if (mine >= 10) GTEST_SKIP() << "these tests run in the background themselves";
  std::unique_ptr<ThreadPool> pool;
  const auto lowest_of_loop = [&pool] {
    std::atomic<int> lowest{-100};
    std::atomic<int> begun{0};
    pool->parallel_for(2, [&](std::int64_t, int) {
      for (++begun; begun < 2;) std::this_thread::yield();  // each worker has one
      for (int now = lowest; now < own_priority() && !lowest.compare_exchange_weak(now, own_priority());) {
      }
    });
    return lowest.load();
  };
  std::thread([&] {
    enter_background();
    pool = std::make_unique<ThreadPool>(2);
    EXPECT_GT(lowest_of_loop(), mine);
  }).join();
  EXPECT_EQ(lowest_of_loop(), mine);
  EXPECT_EQ(pool->size(), 2);
}

#ifndef __SANITIZE_THREAD__  // which supports no threads in children of processes with threads

bool sums_up(ThreadPool& pool) {
  std::vector<std::atomic<int>> hits(500);
  pool.parallel_for(500, [&](std::int64_t task, int) { ++hits[static_cast<std::size_t>(task)]; });
  std::atomic<std::int64_t> sum{0};
  pool.parallel_ranges(1000, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  return std::ranges::all_of(hits, [](const auto& hit) { return hit == 1; }) && sum == 499500;
}

TEST(ThreadPool, WorksInChildrenOfTheProcess) {
  auto pool = std::make_unique<ThreadPool>(4);
  EXPECT_TRUE(sums_up(*pool));
  EXPECT_TRUE(test::in_child([&] {
    std::atomic<int> others{0};
    const auto slow = [&](std::int64_t, int worker) {
      if (worker != 0) ++others;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    for (int i = 0; i < 300 && others == 0; ++i) pool->parallel_for(40, slow);  // a busy machine may run none of them
    const bool right = sums_up(*pool) && sums_up(*pool) && others > 0 && pool->size() == 4;
    const bool grandchild = test::in_child([&] { return sums_up(*pool); });
    pool.reset();  // joins nobody else's threads
    return right && grandchild;
  }));
  EXPECT_TRUE(test::in_child([&] {
    pool.reset();  // never used here
    return true;
  }));
  EXPECT_TRUE(sums_up(*pool)) << "the parent's pool is untouched";
}

/// A worker or the condition variable may be in any state when another thread forks.
TEST(ThreadPool, WorksInChildrenMadeDuringALoop) {
  ThreadPool busy(3);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) busy.parallel_for(50, [](std::int64_t, int) {});
  });
  for (int i = 0; i < 20; ++i) {
    ThreadPool pool(3);
    EXPECT_TRUE(test::in_child([&] { return sums_up(pool); }));
  }
  stop = true;
  other.join();
}

#endif

}  // namespace
}  // namespace dllm
