#include "serve/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <semaphore>

namespace dllm::serve {
namespace {

/// A lane of one thread that waits in its first job until it is released.
struct HeldLane {
  explicit HeldLane(Lane::Limits limits) : lane(limits) {
    lane.add("holder", 0, [this] {
      begun.set_value();
      released.get_future().wait();
    });
    begun.get_future().wait();
  }
  /// What was done, after `jobs` of it.
  std::string finish(int jobs) {
    released.set_value();
    for (int i = 0; i < jobs; ++i) ends.acquire();
    return done;
  }
  std::function<void()> note(char letter) {
    return [this, letter] {
      done += letter;
      ends.release();
    };
  }

  std::counting_semaphore<> ends{0};
  std::promise<void> begun{}, released{};
  std::string done{};  ///< by the only thread
  Lane lane;           ///< last: its thread uses the others
};

TEST(Lane, ClientsTakeTurns) {
  HeldLane held({.threads = 1, .jobs = 10});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(held.lane.add("a", 1, held.note('a')));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(held.lane.add("b", 1, held.note('b')));
  EXPECT_TRUE(held.lane.add("c", 1, held.note('c')));
  EXPECT_EQ(held.finish(7), "abcabaa");
}

TEST(Lane, EachClientHasItsLimits) {
  HeldLane held({.threads = 1, .jobs = 2, .bytes = 100});
  EXPECT_TRUE(held.lane.add("a", 1, held.note('a')));
  EXPECT_TRUE(held.lane.add("a", 1, held.note('a')));
  EXPECT_FALSE(held.lane.add("a", 1, held.note('x')));
  EXPECT_TRUE(held.lane.add("b", 500, held.note('b')));  // alone, whatever its size
  EXPECT_FALSE(held.lane.add("b", 1, held.note('x')));
  EXPECT_TRUE(held.lane.add("c", 60, held.note('c')));
  EXPECT_FALSE(held.lane.add("c", 41, held.note('x')));
  EXPECT_TRUE(held.lane.add("c", 40, held.note('c')));
  EXPECT_EQ(held.finish(5).find('x'), std::string::npos);
  // What was done makes room.
  std::promise<void> again;
  EXPECT_TRUE(held.lane.add("a", 1, [&] { again.set_value(); }));
  again.get_future().wait();
}

TEST(Lane, WhatHasNotBegunIsDropped) {
  const auto token = std::make_shared<int>(0);
  std::atomic<int> done{0};
  std::promise<void> begun, release;
  {
    Lane lane({.threads = 1});
    lane.add("a", 0, [&] {
      begun.set_value();
      release.get_future().wait();
    });
    begun.get_future().wait();
    lane.add("a", 0, [&, token] { ++done; });
    std::jthread later([&] { release.set_value(); });
  }
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_LE(done, 1);
}

}  // namespace
}  // namespace dllm::serve
