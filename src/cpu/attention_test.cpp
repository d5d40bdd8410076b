// Attention against its definition in double precision, and the invariances that the engine relies on: a query's result
// is a function of only the query and the visible set.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/testing/attention_problem.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

using test::kEverything;
using test::kTypes;
using test::Problem;
using test::Random;
using test::random_ranges;
using test::same_bits;

TEST(Attention, MatchesDoublePrecision) {
  const std::vector<KeyRange> ranges = {{2, 3}, {7, 40}, {70, 131}, {199, 200}};
  for (const KernelSet* set : test::available_sets())
    for (TensorType type : kTypes)
      for (std::int64_t dim : {8, 24, 32, 64, 128, 160}) {
        if (dim % codec(type).block_elems != 0) continue;
        Problem problem(type, dim, 200, 19, 2, 5);
        problem.limits = {0, 1, 2, 3, 8, 40, 64, 65, 100, 200};
        problem.limits.resize(19, kEverything);
        const std::vector<float> out = problem.run(*set, ranges);
        for (std::int64_t query = 0; query < 38; ++query) {
          const std::vector<double> expected = problem.expected(ranges, query);
          for (std::size_t d = 0; d < expected.size(); ++d)
            ASSERT_NEAR(out[static_cast<std::size_t>(query * dim) + d], expected[d], 4e-6)
                << set->name << ' ' << codec(type).name << ' ' << dim << " query " << query;
        }
      }
}

TEST(Attention, KeysOfModelsThatRotateThemAreRotatedOnce) {
  for (const KernelSet* set : test::available_sets())
    for (const std::int64_t rows : {2, 19}) {
      const Problem problem(TensorType::kQ4_0, 64, 100, rows, 2, 8, /*plain=*/true);
      const std::vector<float> out = problem.run(*set, {{0, 100}});
      for (std::int64_t query = 0; query < 2 * rows; ++query) {
        const std::vector<double> expected = problem.expected({{0, 100}}, query);
        for (std::size_t d = 0; d < expected.size(); ++d)
          ASSERT_NEAR(out[static_cast<std::size_t>(query * 64) + d], expected[d], 4e-6) << set->name;
      }
    }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  for (const KernelSet* set : test::available_sets()) {
    Problem problem(TensorType::kF32, 16, 100, 3, 1, 6);
    problem.scale = 3000.f;
    const std::vector<float> out = problem.run(*set, {{0, 100}});
    for (std::int64_t query = 0; query < 3; ++query) {
      const std::vector<double> expected = problem.expected({{0, 100}}, query);
      for (std::size_t d = 0; d < 16; ++d)
        ASSERT_NEAR(out[static_cast<std::size_t>(query * 16) + d], expected[d], 2e-3) << set->name;
    }
  }
}

TEST(Attention, NothingVisibleGivesZeros) {
  for (const KernelSet* set : test::available_sets())
    for (const AttentionForm form : test::forms_of(*set)) {
      Problem problem(TensorType::kF16, 32, 10, 2, 1, 1);
      problem.form = form;
      for (float x : problem.run(*set, {})) EXPECT_EQ(x, 0.f);
    }
}

TEST(Attention, NotANumberShowsWhereItIsVisibleAndNowhereElse) {
  for (const KernelSet* set : test::available_sets())
    for (const AttentionForm form : test::forms_of(*set)) {
      SCOPED_TRACE(std::string(set->name) + ", form " + std::to_string(static_cast<int>(form)));
      Problem problem(TensorType::kF32, 32, 80, 4, 1, 2);
      problem.form = form;
      problem.limits = {40, 70, 71, kEverything};
      const std::vector<float> clean = problem.run(*set, {{0, 80}});
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(problem.v.data() + 70 * problem.row_bytes, &nan, 4);
      std::memcpy(problem.k.data() + 75 * problem.row_bytes, &nan, 4);
      const std::vector<float> out = problem.run(*set, {{0, 80}});
      EXPECT_TRUE(same_bits(out.data(), clean.data(), 2 * 32));  // rows 0 and 1 see neither
      EXPECT_TRUE(std::isnan(out[2 * 32]));
      EXPECT_TRUE(same_bits(out.data() + 2 * 32 + 1, clean.data() + 2 * 32 + 1, 31));  // one dimension of a value
      for (std::size_t d = 0; d < 32; ++d) EXPECT_TRUE(std::isnan(out[3 * 32 + d]));
    }
}

RC_GTEST_PROP(Attention, AResultIsAFunctionOfTheQueryAndTheVisibleSet, ()) {
  const TensorType type = *rc::gen::elementOf(std::vector<TensorType>(std::begin(kTypes), std::end(kTypes)));
  const std::int64_t dim = *rc::gen::element<std::int64_t>(32, 64, 160), positions = *rc::gen::inRange(1, 400);
  const std::int64_t rows = *rc::gen::inRange(1, 50), group = *rc::gen::inRange(1, 5), queries = rows * group;
  Problem problem(type, dim, positions, rows, group, *rc::gen::arbitrary<std::uint64_t>());
  const bool causal = *rc::gen::arbitrary<bool>();
  if (causal)
    for (std::size_t r = 0; r < problem.limits.size(); ++r)
      problem.limits[r] = static_cast<std::int32_t>(static_cast<std::int64_t>(r + 1) * positions / rows);
  const std::vector<KeyRange> ranges = random_ranges(positions);
  const KernelSet& set = *default_kernel_set();
  problem.form = *rc::gen::elementOf(test::forms_of(set));
  const std::vector<float> all = problem.run(set, ranges);

  // Any sub-range of the queries gives the same bits, and leaves the other outputs alone.
  const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, queries);
  const std::int64_t end = *rc::gen::inRange<std::int64_t>(begin + 1, queries + 1);
  const std::vector<float> part = problem.run(set, ranges, begin, end, -1.f);
  RC_ASSERT(same_bits(part.data() + begin * dim, all.data() + begin * dim, (end - begin) * dim));
  RC_ASSERT(std::all_of(part.begin(), part.begin() + begin * dim, [](float x) { return x == -1.f; }));
  RC_ASSERT(std::all_of(part.begin() + end * dim, part.end(), [](float x) { return x == -1.f; }));

  // Splitting the ranges in any way gives the same bits too.
  std::vector<KeyRange> fragments;
  for (const KeyRange& range : ranges)
    for (std::int64_t at = range.begin; at < range.end;) {
      const std::int64_t stop = std::min(range.end, at + *rc::gen::inRange<std::int64_t>(1, 100));
      fragments.push_back({at, stop});
      at = stop;
    }
  RC_ASSERT(same_bits(problem.run(set, fragments).data(), all.data(), queries * dim));

  // A causal limit is the same as not naming the positions beyond it.
  const std::int64_t row = *rc::gen::inRange<std::int64_t>(0, rows);
  std::vector<KeyRange> seen;
  for (const KeyRange& range : ranges) {
    const std::int64_t stop = std::min<std::int64_t>(range.end, problem.limits[static_cast<std::size_t>(row)]);
    if (range.begin < stop) seen.push_back({range.begin, stop});
  }
  problem.limits.assign(problem.limits.size(), kEverything);
  const std::vector<float> direct = problem.run(set, seen, row * group, (row + 1) * group);
  RC_ASSERT(same_bits(direct.data() + row * group * dim, all.data() + row * group * dim, group * dim));
}

TEST(KvCacheRows, RoundToTheNearestRepresentableValue) {
  Random random(4);
  for (const KernelSet* set : test::available_sets())
    for (TensorType type : kTypes) {
      const std::vector<float> x = random_floats(random, 96, 5.f);
      std::vector<std::byte> row(static_cast<std::size_t>(codec(type).row_bytes(96)));
      std::vector<float> back(96);
      set->encode(type, x.data(), 96, row.data());
      codec(type).dequantize(row.data(), back.data(), 96);
      // Half a unit in the last place: 2^-11 and 2^-8 of the value, 1/254 and 1/16 of the block's maximum (and its
      // float16 scale). At the far end of 4 bits it is a whole unit: 7 steps are the most, 8 the least.
      for (std::size_t i = 0; i < 96; ++i) {
        const double bound = type == TensorType::kF32    ? 0
                             : type == TensorType::kF16  ? std::abs(static_cast<double>(x[i])) / 2048
                             : type == TensorType::kBF16 ? std::abs(static_cast<double>(x[i])) / 256
                             : type == TensorType::kQ8_0 ? 5.0 / 254 * 1.13
                                                         : 5.0 / 8 * 1.01;
        EXPECT_LE(std::abs(static_cast<double>(back[i]) - static_cast<double>(x[i])), bound + 1e-12)
            << set->name << ' ' << codec(type).name;
      }
    }
}

}  // namespace
}  // namespace dllm::cpu
