#include "test/units.h"

#include <gtest/gtest.h>

namespace dllm::rtl {
namespace {

constexpr std::uint64_t kVectors = 100000;

void expect_equal(const UnitResult& result, int cycles) {
  EXPECT_EQ(result.wrong, 0u) << "of " << result.vectors << ", first: " << result.first;
  EXPECT_EQ(result.cycles, cycles);
  ::testing::Test::RecordProperty("vectors", std::to_string(result.vectors));
}

// Cycles are the latencies of the shipped profiles (vector_max 4, vector_sum 8), at every number of lanes.
class RtlUnits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Lanes, RtlUnits, ::testing::Values(8, 64));

TEST_P(RtlUnits, MaximumWithIndex) { expect_equal(check_max_index(GetParam(), kVectors), 4); }
TEST_P(RtlUnits, RowSum) { expect_equal(check_row_sum(GetParam(), kVectors), 8); }
// Fewer vectors of 64 lanes: each takes up to 64 cycles.
TEST_P(RtlUnits, TopMaskTakesACyclePerLane) {
  expect_equal(check_top_mask(GetParam(), GetParam() == 8 ? kVectors : kVectors / 16), 0);
}

TEST(RtlFunctions, ExponentialOfEveryArgument) { expect_equal(check_exp(), 1); }
TEST(RtlFunctions, ReciprocalOfEveryArgument) { expect_equal(check_reciprocal(), 1); }
TEST(RtlFunctions, SquareRootOfEveryArgument) { expect_equal(check_sqrt(), 1); }
TEST(RtlFunctions, WideProduct) { expect_equal(check_wide_multiply(10 * kVectors), 1); }
TEST(RtlFunctions, Sum) { expect_equal(check_add(20 * kVectors), 1); }
TEST(RtlFunctions, Product) { expect_equal(check_multiply(20 * kVectors), 1); }

}  // namespace
}  // namespace dllm::rtl
