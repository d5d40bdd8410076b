#include "graph/expert_choice.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace dllm {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Set = std::vector<std::uint8_t>;

Set largest(const std::vector<float>& keys, const Set& allowed, std::int64_t count) {
  Set chosen(keys.size(), 7);
  choose_largest(keys, allowed, count, chosen);
  return chosen;
}

TEST(ExpertChoice, TiesGoToTheLowerIndexAndNanComesLast) {
  EXPECT_EQ(largest({1, 3, 3, 3}, {1, 1, 1, 1}, 2), (Set{0, 1, 1, 0}));
  EXPECT_EQ(largest({1, 3, 3, 3}, {1, 0, 1, 1}, 2), (Set{0, 0, 1, 1}));
  EXPECT_EQ(largest({kNan, -5, kNan, 2}, {1, 1, 1, 1}, 3), (Set{1, 1, 0, 1}));
  EXPECT_EQ(largest({2, 1}, {0, 1}, 2), (Set{0, 1}));
}

TEST(ExpertChoice, GroupsOfTheLargestSumOfTwo) {
  op::Route route;
  route.groups_used = 1;
  std::vector<float> sums(2);
  Set kept(2), allowed(6);
  const std::vector<float> keys = {9, 0, 1, 4, 5, 4};
  limit_groups(route, keys, sums, kept, allowed);
  EXPECT_EQ(allowed, (Set{1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(sums, (std::vector<float>{10, 9}));
}

TEST(ExpertChoice, ABlockSharesTheLargestOfItsRows) {
  op::Route route;
  route.capacity = 2;
  std::vector<float> best(3);
  Set allowed(3);
  const std::vector<float> keys = {1, 2, 3, 8, 0, 4};
  pool_of_block(route, keys, best, Set{1, 1, 1}, allowed);
  EXPECT_EQ(best, (std::vector<float>{8, 2, 4}));
  EXPECT_EQ(allowed, (Set{1, 0, 1}));
}

TEST(ExpertChoice, WeightsAreNormalizedAndScaled) {
  op::Route route;
  route.used = 2, route.normalize = true, route.scale = 2;
  std::vector<float> out(4);
  const std::vector<float> scores = {0.5f, 0.25f, 0.25f};
  write_choice(route, scores, Set{1, 0, 1}, {}, out);
  EXPECT_EQ(out, (std::vector<float>{0, 2, 2 * 0.5f / 0.75f, 2 * 0.25f / 0.75f}));
  write_choice(route, scores, Set{1, 0, 1}, std::vector<float>{3, 1, 5}, out);
  EXPECT_EQ(out, (std::vector<float>{0, 2, 3 * (2 * 0.5f / 0.75f), 5 * (2 * 0.25f / 0.75f)}));
}

}  // namespace
}  // namespace dllm
