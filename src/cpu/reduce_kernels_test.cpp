// The kernels that reduce logits, against the C library and against base/rng.h.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"

namespace dllm::cpu {
namespace {

using test::Random;

const float kFloatNan = std::numeric_limits<float>::quiet_NaN();
const float kFloatInf = std::numeric_limits<float>::infinity();

std::int64_t size_of(const std::vector<float>& z) { return static_cast<std::int64_t>(z.size()); }

TEST(ReduceKernels, ArgMaxIsTheFirstLargestAndNoNan) {
  for (const KernelSet* set : test::available_sets()) {
    const auto arg_max = [set](const std::vector<float>& z) { return set->arg_max(z.data(), size_of(z)); };
    EXPECT_EQ(arg_max({}), -1);
    EXPECT_EQ(arg_max({kFloatNan, kFloatNan}), -1);
    EXPECT_EQ(arg_max({kFloatNan, -kFloatInf, kFloatNan, -kFloatInf}), 1);
    EXPECT_EQ(arg_max({1, 3, kFloatNan, 3}), 1);
    EXPECT_EQ(arg_max({-2, kFloatInf, 7, kFloatInf}), 1);
    Random random(3);
    for (std::int64_t n : {15, 16, 17, 63, 64, 65, 200, 1024}) {
      std::vector<float> z = random_floats(random, n);
      const auto at = static_cast<std::size_t>(random.below(n));
      z[at] = 2;
      z.push_back(2);
      EXPECT_EQ(arg_max(z), static_cast<std::int64_t>(at)) << set->name;
    }
  }
}

TEST(ReduceKernels, FindAtLeastVisitsEveryValueOnce) {
  Random random(4);
  for (const KernelSet* set : test::available_sets())
    for (std::int64_t n : {1, 16, 33, 100}) {
      std::vector<float> z = random_floats(random, n);
      z[0] = kFloatNan;
      std::vector<std::int64_t> expected, actual;
      for (std::int64_t i = 0; i < n; ++i)
        if (z[static_cast<std::size_t>(i)] >= 0.3f) expected.push_back(i);
      for (std::int64_t i = set->find_at_least(z.data(), 0, n, 0.3f); i < n;
           i = set->find_at_least(z.data(), i + 1, n, 0.3f))
        actual.push_back(i);
      EXPECT_EQ(actual, expected) << set->name;
    }
}

TEST(ReduceKernels, ExpSumsHaveDoublePrecision) {
  Random random(5);
  for (const KernelSet* set : test::available_sets())
    for (double beta : {1.0, 0.37, 3.1})
      for (std::int64_t n : {1, 7, 8, 9, 1000}) {
        std::vector<float> z = random_floats(random, n, 150.f);
        if (n > 8) z[3] = kFloatNan, z[5] = -kFloatInf;
        double expected[2] = {}, actual[2];
        for (float x : z) {
          const double d = (static_cast<double>(x) - 150) * beta;
          if (!(d > kLeastExponent)) continue;
          expected[0] += std::exp(d);
          expected[1] += d * std::exp(d);
        }
        set->exp_sums(z.data(), n, 150.f, beta, actual);
        for (int i = 0; i < 2; ++i) EXPECT_NEAR(actual[i], expected[i], 1e-14 * std::abs(expected[i])) << set->name;
        // Each term: one value at a time.
        set->exp_sums(z.data(), 1, 150.f, beta, actual);
        const double e = std::exp((static_cast<double>(z[0]) - 150) * beta);
        EXPECT_NEAR(actual[0], e, 5e-16 * e) << set->name;
      }
}

TEST(ReduceKernels, NextDrawPassesOverNoTokenThatReachesTheBound) {
  Random random(6);
  for (const KernelSet* set : test::available_sets())
    for (double temperature : {0.2, 1.0, 3.0})
      for (std::int64_t n : {5, 8, 700}) {
        const std::vector<float> z = random_floats(random, n, 9.f);
        const RngKey key{random.bits(), 77};
        DrawArgs args;
        args.logits = z.data(), args.count = n, args.inverse_temperature = 1 / temperature, args.seed = key.seed;
        args.first_token = 4000, args.position = 12, args.step = 3;
        args.stream = rng_stream(key, RngPurpose::kToken);
        for (double bound : {-20.0, 0.0, 4.0, 30.0}) {
          std::int64_t next = set->next_draw(args, 0, bound - 1e-10), reported = 0, reached = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const double drawn = static_cast<double>(z[static_cast<std::size_t>(i)]) / temperature +
                                 gumbel(key, RngPurpose::kToken, 3, 12, static_cast<std::uint32_t>(4000 + i));
            reached += drawn >= bound;
            if (next == i) {
              ++reported;
              next = set->next_draw(args, i + 1, bound - 1e-10);
            } else {
              ASSERT_LT(drawn, bound) << set->name << ' ' << i;
            }
          }
          // It is a filter and may report too many, but for large bounds almost everything it reports counts.
          if (n == 700 && bound >= 4 && temperature >= 1) {
            EXPECT_LE(reported, 20 + 5 * reached) << set->name << bound;
          }
        }
      }
}

}  // namespace
}  // namespace dllm::cpu
