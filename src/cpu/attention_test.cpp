// Attention against its definition in double precision, and the invariances that the engine relies on: a query's result
// is a function of only the query and the visible set.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

using test::Random;

constexpr TensorType kTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                 TensorType::kQ4_0};
constexpr std::int32_t kEverything = std::numeric_limits<std::int32_t>::max();

/// Random K and V of one kv head, and queries.
struct Problem {
  Problem(TensorType cache_type, std::int64_t dim, std::int64_t n, std::int64_t row_count, std::int64_t heads,
          std::uint64_t seed, bool plain = false)
      : type(cache_type), plain_keys(plain), head_dim(dim), positions(n), rows(row_count), group(heads) {
    Random random(seed);
    const KernelSet& set = *find_kernel_set("scalar");
    row_bytes = codec(type).row_bytes(dim);
    k.resize(static_cast<std::size_t>(positions * row_bytes));
    v = k;
    for (std::int64_t p = 0; p < positions; ++p) {
      (plain ? set.encode : set.encode_key)(type, random_floats(random, dim).data(), dim, k.data() + p * row_bytes);
      set.encode(type, random_floats(random, dim).data(), dim, v.data() + p * row_bytes);
    }
    q = random_floats(random, rows * group * dim, 3.f);
    limits.assign(static_cast<std::size_t>(rows), kEverything);
  }

  /// Queries [begin, end); the others of the result stay at `untouched`.
  std::vector<float> run(const KernelSet& set, const std::vector<KeyRange>& ranges, std::int64_t begin,
                         std::int64_t end, float untouched = 7.f) const {
    std::vector<float> out(q.size(), untouched);
    const std::unique_ptr<std::byte, void (*)(void*)> scratch(
        static_cast<std::byte*>(std::aligned_alloc(64, attention_scratch_bytes(head_dim))), std::free);
    AttentionArgs args;
    args.type = type, args.k = k.data(), args.v = v.data(), args.position_bytes = row_bytes;
    args.plain_keys = plain_keys;
    args.head_dim = head_dim, args.group = group, args.scale = scale;
    args.ranges = ranges.data(), args.range_count = static_cast<std::int64_t>(ranges.size());
    args.limits = limits.data(), args.q = q.data(), args.out = out.data(), args.row_stride = group * head_dim;
    args.scratch = scratch.get();
    for (args.begin = begin; args.begin < end; args.begin = args.end) {
      args.end = std::min(end, args.begin + kAttentionQueries);
      set.attention(args);
    }
    return out;
  }
  std::vector<float> run(const KernelSet& set, const std::vector<KeyRange>& ranges) const {
    return run(set, ranges, 0, rows * group);
  }

  std::vector<double> expected(const std::vector<KeyRange>& ranges, std::int64_t query) const {
    const auto decode = [&](const std::vector<std::byte>& from, std::int64_t p) {
      std::vector<float> row(static_cast<std::size_t>(head_dim));
      codec(type).dequantize(from.data() + p * row_bytes, row.data(), head_dim);
      return row;
    };
    std::vector<double> out(static_cast<std::size_t>(head_dim), 0), scores;
    std::vector<std::int64_t> visible;
    for (const KeyRange& range : ranges)
      for (std::int64_t p = range.begin; p < range.end; ++p) {
        if (p >= limits[static_cast<std::size_t>(query / group)]) continue;
        std::vector<float> key = decode(k, p);
        if (type == TensorType::kQ4_0 && !plain_keys) unrotate(key);
        double s = 0;
        for (std::size_t d = 0; d < key.size(); ++d)
          s += static_cast<double>(q[static_cast<std::size_t>(query * head_dim) + d]) * static_cast<double>(key[d]);
        visible.push_back(p);
        scores.push_back(s * static_cast<double>(scale));
      }
    if (visible.empty()) return out;
    const double top = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double s : scores) total += std::exp(s - top);
    for (std::size_t i = 0; i < visible.size(); ++i) {
      const std::vector<float> value = decode(v, visible[i]);
      for (std::size_t d = 0; d < value.size(); ++d)
        out[d] += std::exp(scores[i] - top) / total * static_cast<double>(value[d]);
    }
    return out;
  }

  /// Keys of Q4_0 are H k / 8 by blocks of 32, and H H = 32.
  static void unrotate(std::vector<float>& key) {
    for (std::size_t block = 0; block < key.size(); block += 32) {
      float turned[32];
      for (unsigned i = 0; i < 32; ++i) {
        double sum = 0;
        for (unsigned j = 0; j < 32; ++j)
          sum += (std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(key[block + j]);
        turned[i] = static_cast<float>(sum / 4);
      }
      std::copy_n(turned, 32, key.begin() + static_cast<std::ptrdiff_t>(block));
    }
  }

  TensorType type;
  bool plain_keys;
  std::int64_t head_dim, positions, rows, group, row_bytes = 0;
  float scale = 0.37f;
  std::vector<std::byte> k, v;
  std::vector<float> q;
  std::vector<std::int32_t> limits;
};

bool same_bits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

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
  for (const KernelSet* set : test::available_sets()) {
    const Problem problem(TensorType::kF16, 32, 10, 2, 1, 1);
    for (float x : problem.run(*set, {})) EXPECT_EQ(x, 0.f);
  }
}

TEST(Attention, NotANumberShowsWhereItIsVisibleAndNowhereElse) {
  for (const KernelSet* set : test::available_sets()) {
    Problem problem(TensorType::kF32, 32, 80, 4, 1, 2);
    problem.limits = {40, 70, 71, kEverything};
    const std::vector<float> clean = problem.run(*set, {{0, 80}});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(problem.v.data() + 70 * problem.row_bytes, &nan, 4);
    std::memcpy(problem.k.data() + 75 * problem.row_bytes, &nan, 4);
    const std::vector<float> out = problem.run(*set, {{0, 80}});
    EXPECT_TRUE(same_bits(out.data(), clean.data(), 2 * 32)) << set->name;  // rows 0 and 1 see neither
    EXPECT_TRUE(std::isnan(out[2 * 32]));
    EXPECT_TRUE(same_bits(out.data() + 2 * 32 + 1, clean.data() + 2 * 32 + 1, 31));  // one dimension of a value
    for (std::size_t d = 0; d < 32; ++d) EXPECT_TRUE(std::isnan(out[3 * 32 + d]));
  }
}

/// Random visible positions as the smallest number of ranges.
std::vector<KeyRange> random_ranges(std::int64_t positions) {
  std::vector<KeyRange> ranges;
  std::int64_t next = *rc::gen::inRange<std::int64_t>(0, 5);
  while (next < positions) {
    const std::int64_t end = std::min(positions, next + *rc::gen::inRange<std::int64_t>(1, 90));
    ranges.push_back({next, end});
    next = end + *rc::gen::inRange<std::int64_t>(1, 70);
  }
  return ranges;
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
