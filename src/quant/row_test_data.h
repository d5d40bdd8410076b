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

}  // namespace dllm::test
