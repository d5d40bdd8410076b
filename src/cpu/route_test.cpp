// Does the router choose by its definition, and independently of how rows are grouped?
#include "cpu/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cpu/kernels/test_data.h"

namespace dllm::cpu {
namespace {

op::Route route_of(std::int32_t used) {
  op::Route o{};
  o.logits = o.bias = o.out = kNoId;
  o.used = used;
  o.score = GateScore::kSoftmax;
  o.scale = 1.f;
  return o;
}

struct Routed {
  std::vector<int> experts;
  std::vector<float> weights;
};

class Route : public ::testing::Test {
 protected:
  /// Rows of `logits`, `experts` each; `runs` as RouteRunner::run() takes them.
  std::vector<Routed> run(const op::Route& o, std::int64_t experts, const std::vector<float>& logits,
                          const std::vector<float>& bias = {}, std::vector<std::int64_t> runs = {}, int threads = 2) {
    ThreadPool pool(threads);
    RouteRunner runner(*default_kernel_set(), pool);
    const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / experts;
    std::vector<float> out(static_cast<std::size_t>(rows * 2 * o.used));
    runner.run(o, {.experts = experts,
                   .rows = rows,
                   .logits = logits.data(),
                   .bias = bias.empty() ? nullptr : bias.data(),
                   .runs = runs,
                   .out = out.data()});
    std::vector<Routed> result;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto at = out.begin() + row * 2 * o.used;
      result.push_back({{at, at + o.used}, {at + o.used, at + 2 * o.used}});
    }
    return result;
  }
};

using Ids = std::vector<int>;

TEST_F(Route, SoftmaxOverAllExpertsIsNotRenormalized) {
  const std::vector<float> logits = {1.f, 3.f, 2.f, 0.f};
  const Routed row = run(route_of(2), 4, logits).front();
  EXPECT_EQ(row.experts, (Ids{1, 2}));
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z));
  EXPECT_NEAR(row.weights[0], std::exp(3.) / sum, 1e-6);
  EXPECT_NEAR(row.weights[1], std::exp(2.) / sum, 1e-6);
}

TEST_F(Route, NormalizedWeightsSumToTheScale) {
  op::Route o = route_of(2);
  o.normalize = true;
  o.scale = 2.5f;
  const Routed row = run(o, 4, {1.f, 3.f, 2.f, 0.f}).front();
  EXPECT_NEAR(row.weights[0] + row.weights[1], 2.5, 1e-6);
  EXPECT_NEAR(row.weights[0] / row.weights[1], std::exp(1.), 1e-5);
}

TEST_F(Route, EqualLogitsGoToTheLowerIndex) {
  EXPECT_EQ(run(route_of(2), 5, {1.f, 2.f, 2.f, 2.f, 1.f}).front().experts, (Ids{1, 2}));
  EXPECT_EQ(run(route_of(4), 5, {1.f, 2.f, 2.f, 2.f, 1.f}).front().experts, (Ids{0, 1, 2, 3}));
}

TEST_F(Route, LogitsWhoseScoresRoundAlikeStillRank) {
  // exp(-40) + ... : both sigmoids are 1 in float32.
  op::Route o = route_of(1);
  o.score = GateScore::kSigmoid;
  EXPECT_EQ(run(o, 3, {39.f, 40.f, 41.f}).front().experts, (Ids{2}));
}

TEST_F(Route, TheBiasChoosesAndDoesNotWeigh) {
  op::Route o = route_of(1);
  o.score = GateScore::kSigmoid;
  const Routed row = run(o, 3, {2.f, 1.f, 0.f}, {0.f, 0.f, 1.f}).front();
  EXPECT_EQ(row.experts, (Ids{2}));
  EXPECT_NEAR(row.weights[0], 0.5, 1e-6);
}

TEST_F(Route, AGroupCountsByItsTwoBest) {
  // Groups of three: {5, 0, 0} = 5, {3, 3, 0} = 6, {2, 2, 2} = 4.
  op::Route o = route_of(2);
  o.groups = 3;
  o.groups_used = 1;
  const std::vector<float> bias = {5, 0, 0, 3, 3, 0, 2, 2, 2};
  const std::vector<float> logits(9, 0.f);
  EXPECT_EQ(run(o, 9, logits, bias).front().experts, (Ids{3, 4}));
  o.groups_used = 2;
  EXPECT_EQ(run(o, 9, logits, bias).front().experts, (Ids{0, 3}));
}

TEST_F(Route, EqualGroupsGoToTheLowerIndex) {
  op::Route o = route_of(2);
  o.score = GateScore::kSigmoid;
  o.groups = 4;
  o.groups_used = 2;
  // Groups 1, 2 and 3 are alike.
  EXPECT_EQ(run(o, 8, {0, 0, 1, 2, 1, 2, 2, 1}).front().experts, (Ids{3, 5}));
}

TEST_F(Route, ABlockChoosesItsPoolTogether) {
  op::Route o = route_of(1);
  o.capacity = 2;
  o.block = 4;
  // Row 0 would take expert 0, row 1 expert 1, row 2 expert 2; together experts 1 and 2 are the strongest.
  const std::vector<float> logits = {3, 2, 1, 0, /**/ 0, 9, 0, 0, /**/ 0, 0, 8, 0};
  const auto together = run(o, 4, logits, {}, {0, 3});
  EXPECT_EQ(together[0].experts, (Ids{1}));
  EXPECT_EQ(together[1].experts, (Ids{1}));
  EXPECT_EQ(together[2].experts, (Ids{2}));
  const auto apart = run(o, 4, logits, {}, {0, 1, 3});
  EXPECT_EQ(apart[0].experts, (Ids{0}));
}

TEST_F(Route, LogitsThatAreNoNumbersStillGiveExperts) {
  const float nan = std::nanf("");
  const Routed row = run(route_of(3), 4, {nan, 1.f, nan, nan}).front();
  EXPECT_EQ(row.experts, (Ids{0, 1, 2}));
  EXPECT_TRUE(std::isnan(row.weights[1]));
}

TEST_F(Route, RowsAreIndependentOfTheBatchAndThreads) {
  test::Random random(7);
  const std::vector<float> logits = test::random_floats(random, 40 * 32, 3.f);
  const std::vector<float> bias = test::random_floats(random, 32, 0.2f);
  op::Route o = route_of(6);
  o.score = GateScore::kSigmoid;
  o.groups = 4;
  o.groups_used = 2;
  o.normalize = true;
  const auto all = run(o, 32, logits, bias, {}, 3);
  for (std::size_t row = 0; row < all.size(); ++row) {
    const auto at = logits.begin() + static_cast<std::ptrdiff_t>(row) * 32;
    const Routed alone = run(o, 32, {at, at + 32}, bias, {}, 1).front();
    EXPECT_EQ(all[row].experts, alone.experts);
    EXPECT_EQ(all[row].weights, alone.weights);
  }
}

}  // namespace
}  // namespace dllm::cpu
