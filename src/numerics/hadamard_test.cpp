#include "numerics/hadamard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dllm {
namespace {

TEST(Hadamard, IsOrthonormalInEveryOrderOfPublishedModels) {
  for (const std::int64_t n : {1, 2, 8, 64, 128, 12, 24, 20, 40, 28, 56, 224, 96, 36, 44, 3072}) {
    const auto matrix = Hadamard::create(n, 7);
    ASSERT_TRUE(matrix) << n;
    const std::int64_t rows = std::min<std::int64_t>(n, 40);
    std::vector<std::vector<double>> image;
    for (std::int64_t i = 0; i < rows; ++i) {
      image.emplace_back(static_cast<std::size_t>(n), 0.0);
      image.back()[static_cast<std::size_t>(i * (n / rows))] = 1;
      matrix->apply(image.back());
      for (const double x : image.back()) ASSERT_NEAR(std::fabs(x) * std::sqrt(static_cast<double>(n)), 1, 1e-12) << n;
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        double product = 0;
        for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k)
          product += image[static_cast<std::size_t>(i)][k] * image[static_cast<std::size_t>(j)][k];
        ASSERT_NEAR(product, i == j ? 1 : 0, 1e-12) << n << ": rows " << i << " and " << j;
      }
  }
}

TEST(Hadamard, OtherOrdersAreRefused) {
  for (const std::int64_t n : {0, 3, 6, 92, 100}) EXPECT_FALSE(Hadamard::create(n, 0)) << n;
  for (const std::int64_t n : {4096, 3584, 12288, 14336, 5120, 2560}) EXPECT_TRUE(Hadamard::create(n, 1)) << n;
}

TEST(Hadamard, InFloat32AsInFloat64) {
  for (const std::int64_t n : {2, 16, 64, 1536, 24, 40, 28, 3584, 44, 60}) {
    const auto matrix = Hadamard::online(n);
    ASSERT_TRUE(matrix) << n;
    std::vector<float> x;
    std::vector<double> exact;
    for (std::int64_t i = 0; i < n; ++i) {
      x.push_back(static_cast<float>(std::sin(static_cast<double>(3 * i * i + 1))) * (i % 7 == 0 ? 30.f : 1.f));
      exact.push_back(static_cast<double>(x.back()));
    }
    matrix->apply(std::span(x));
    matrix->apply(std::span(exact));
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(static_cast<double>(x[i]), exact[i], 4e-5) << n << ": " << i;
  }
}

TEST(Hadamard, LargestOrderOfAWidth) {
  EXPECT_EQ(Hadamard::largest_online(12288, 0), 12288);  // LLaDA-8B's feed-forward width
  EXPECT_EQ(Hadamard::largest_online(12288, 2048), 2048);
  EXPECT_EQ(Hadamard::largest_online(1536, 1000), 512) << "not 768";
  EXPECT_EQ(Hadamard::largest_online(14336, 0), 14336);
  EXPECT_EQ(Hadamard::largest_online(11008, 0), 256) << "43 * 256";
  EXPECT_EQ(Hadamard::largest_online(18944, 0), 512) << "37 * 512: Paley's matrix of order 148 is too large";
  EXPECT_FALSE(Hadamard::online(148));
  EXPECT_EQ(Hadamard::largest_online(15, 0), 1);
}

}  // namespace
}  // namespace dllm
