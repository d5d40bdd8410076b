#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dllm {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  const std::uint32_t ones = 0xffffffffu;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Block{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Rng, StreamsOfPurposesAndKeysDiffer) {
  const RngKey key{42, 0};
  const double a = uniform01(key, RngPurpose::kToken, 1, 2, 3);
  EXPECT_EQ(a, uniform01(key, RngPurpose::kToken, 1, 2, 3));
  EXPECT_NE(a, uniform01(key, RngPurpose::kConfidence, 1, 2, 3));
  EXPECT_NE(a, uniform01({43, 0}, RngPurpose::kToken, 1, 2, 3));
  EXPECT_NE(a, uniform01({42, 1}, RngPurpose::kToken, 1, 2, 3));
}

TEST(Rng, UniformIsOpenAndUnbiased) {
  double sum = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double u = uniform01({7, 0}, RngPurpose::kToken, 0, 0, static_cast<std::uint32_t>(i));
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.01);  // standard error 0.002
}

TEST(Rng, GumbelHasEulerMascheroniMean) {
  double sum = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) sum += gumbel({9, 0}, RngPurpose::kToken, 0, 0, static_cast<std::uint32_t>(i));
  EXPECT_NEAR(sum / n, 0.5772, 0.04);  // standard error 0.009
}

}  // namespace
}  // namespace dllm
