#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace dllm {
namespace {

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

}  // namespace
}  // namespace dllm
