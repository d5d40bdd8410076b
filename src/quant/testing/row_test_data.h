#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "numerics/tensor_type.h"

namespace dllm::test {

inline std::vector<double> normals(std::size_t count, std::uint32_t seed, double sigma = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<double> values(count);
  for (double& value : values) value = sigma * static_cast<double>(normal(random));
  return values;
}

inline std::vector<double> decode_doubles(TensorType type, const std::vector<std::byte>& bytes, std::size_t count) {
  std::vector<float> values(count);
  codec(type).dequantize(bytes.data(), values.data(), static_cast<std::int64_t>(count));
  return {values.begin(), values.end()};
}

/// The inverse of the leading part of a symmetric matrix, by Gauss-Jordan elimination.
inline std::vector<std::vector<double>> inverse_of(const std::vector<std::vector<double>>& matrix, std::size_t n) {
  std::vector<std::vector<double>> a(n, std::vector<double>(2 * n, 0.0));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k) a[i][k] = matrix[i][k];
    a[i][n + i] = 1;
  }
  for (std::size_t p = 0; p < n; ++p) {
    const double pivot = a[p][p];
    for (double& value : a[p]) value /= pivot;
    for (std::size_t i = 0; i < n; ++i) {
      const double factor = i == p ? 0 : a[i][p];
      for (std::size_t k = 0; factor != 0 && k < 2 * n; ++k) a[i][k] -= factor * a[p][k];
    }
  }
  std::vector<std::vector<double>> result;
  for (const auto& row : a) result.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(n), row.end());
  return result;
}

}  // namespace dllm::test
