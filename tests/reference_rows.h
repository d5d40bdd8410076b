#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "backend/backend.h"

namespace dllm::test {

using Matrix = std::vector<std::vector<double>>;  // [row][column]

struct ReferenceCache : KvCache {
  explicit ReferenceCache(Position capacity) : KvCache(capacity) {}
  using KvCache::record;
  std::vector<Matrix> k, v;  // [layer][position][column]
};

/// Everything one pass needs to know about a row.
struct RowRef {
  const SequenceStep* step;
  PlanRow row;
  const ShadowRow* shadow = nullptr;  ///< or it is one of the plan's rows
};

/// op::LayerNorm of a row.
inline std::vector<double> layer_norm_row(std::vector<double> row, const std::vector<double>& gain,
                                          const std::vector<double>& bias, double eps) {
  const auto n = static_cast<double>(row.size());
  double mean = 0, squares = 0;
  for (const double x : row) mean += x / n;
  for (const double x : row) squares += (x - mean) * (x - mean) / n;
  const double factor = 1 / std::sqrt(squares + eps);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = (row[i] - mean) * factor * gain[i] + bias[i];
  return row;
}

}  // namespace dllm::test
