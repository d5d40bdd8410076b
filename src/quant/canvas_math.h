#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "model/weights.h"

namespace dllm {

/// The sum of n products, lane by lane, so that the loop vectorises without a change of the order of sums.
inline float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  float sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) sums[i % kLanes] += a[i] * b[i];
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

/// A row of a weight in float32.
void decode_weight_row(const WeightView& weight, std::int64_t row, std::span<float> out);

/// out = x W^T + bias (or empty) for rows of x; out: [rows][rows of W].
void multiply_rows(const WeightView& weight, std::span<const float> bias, std::span<const float> x,
                   std::span<float> out, ThreadPool& pool);

/// out = activation(gate) * up, each [rows][width]; an empty `up` is ones.
void gated(bool gelu, std::span<const float> gate, std::span<const float> up, std::int64_t width, std::span<float> out,
           ThreadPool& pool);

/// Transforms every `order` numbers by an orthonormal Hadamard matrix of a valid order.
void transform_rows(std::int64_t order, std::span<float> values, ThreadPool& pool);

}  // namespace dllm
