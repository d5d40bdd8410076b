#include "quant/hadamard.h"

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

}  // namespace
}  // namespace dllm
