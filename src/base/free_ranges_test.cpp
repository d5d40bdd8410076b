#include "base/free_ranges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace dllm {
namespace {

using Holes = std::map<std::int64_t, std::int64_t>;

TEST(FreeRanges, GivesTheLowestThatFits) {
  FreeRanges<std::int64_t> free(10, 100);
  EXPECT_EQ(free.acquire(20), 10);
  EXPECT_EQ(free.acquire(30), 30);
  EXPECT_EQ(free.acquire(41), std::nullopt);
  free.release(10, 20);
  EXPECT_EQ(free.acquire(21), 60);
  EXPECT_EQ(free.acquire(5), 10);
  EXPECT_EQ(free.holes(), (Holes{{15, 15}, {81, 19}}));
}

TEST(FreeRanges, JoinsWhatComesBack) {
  FreeRanges<std::int64_t> free(0, 40);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(free.acquire(10), 10 * i);
  EXPECT_TRUE(free.holes().empty());
  free.release(10, 10);
  free.release(30, 10);
  EXPECT_EQ(free.holes(), (Holes{{10, 10}, {30, 10}}));
  free.release(20, 10);
  EXPECT_EQ(free.holes(), (Holes{{10, 30}}));
  free.release(0, 10);
  EXPECT_EQ(free.holes(), (Holes{{0, 40}}));
}

TEST(FreeRanges, StaysBelowALimit) {
  FreeRanges<std::uint64_t> free(5, 50);
  EXPECT_EQ(free.acquire(10, 14), std::nullopt);
  EXPECT_EQ(free.acquire(10, 3), std::nullopt);
  EXPECT_EQ(free.acquire(10, 15), 5u);
  EXPECT_EQ(free.acquire(10, 24), std::nullopt);
  EXPECT_EQ(free.acquire(35), 15u);
}

}  // namespace
}  // namespace dllm
