#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "backend/step_plan.h"

namespace dllm::test {

/// A row of an embedding with its mixture, in float64. `table`: rows as wide as `row`.
inline void mix(const RowMixture& mixture, const std::vector<double>& table, std::vector<double>& row) {
  const auto length = [](const double* x, std::size_t n) {
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) squares += x[i] * x[i];
    return std::sqrt(squares);
  };
  if (mixture.instead) row.assign(row.size(), 0.0);
  double wanted = 0;
  for (const MixedToken& mixed : mixture.tokens) {
    const double* const other = table.data() + static_cast<std::size_t>(mixed.token) * row.size();
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += static_cast<double>(mixed.weight) * other[i];
    wanted += static_cast<double>(mixed.weight) * length(other, row.size());
  }
  const double scale = mixture.instead ? wanted / length(row.data(), row.size()) : 1.0;
  for (double& x : row) x *= scale;
}

}  // namespace dllm::test
