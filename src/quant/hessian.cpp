#include "quant/hessian.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace dllm {
namespace {

constexpr std::int64_t kTile = 128;  ///< sums that are kept in registers and the first-level cache at once

/// In eight sums, so that it vectorises; their order does not depend on the processor.
double inner_product(const double* a, const float* b, std::int64_t n) {
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * static_cast<double>(b[i + lane]);
  for (; i < n; ++i) sums[i % 8] += a[i] * static_cast<double>(b[i]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

void round_to(const std::vector<double>& from, std::span<float> to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

void add_products(Triangle& hessian, std::span<const float> x, ThreadPool& pool) {
  const std::int64_t n = hessian.size(), rows = static_cast<std::int64_t>(x.size()) / n;
  parallel_items(pool, n, rows * n / 2, [&](std::int64_t i, int) {
    const std::span<float> to = hessian.row(i);
    for (std::int64_t first = 0; first <= i; first += kTile) {
      const std::int64_t count = std::min(kTile, i + 1 - first);
      double sums[kTile] = {};
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const values = x.data() + r * n;
        const auto factor = static_cast<double>(values[i]);
        for (std::int64_t k = 0; k < count; ++k) sums[k] += factor * static_cast<double>(values[first + k]);
      }
      for (std::int64_t k = 0; k < count; ++k) {
        float& sum = to[static_cast<std::size_t>(first + k)];
        sum = static_cast<float>(static_cast<double>(sum) + sums[k]);
      }
    }
  });
}

void add_differences(std::span<double> cross, std::span<const float> x, std::span<const float> y, std::int64_t n,
                     ThreadPool& pool) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / n;
  parallel_items(pool, n, rows * n, [&](std::int64_t i, int) {
    for (std::int64_t first = 0; first < n; first += kTile) {
      const std::int64_t count = std::min(kTile, n - first);
      double sums[kTile] = {};
      for (std::int64_t r = 0; r < rows; ++r) {
        const float *const from = x.data() + r * n + first, *const to = y.data() + r * n + first;
        const auto factor = static_cast<double>(x[static_cast<std::size_t>(r * n + i)]);
        for (std::int64_t k = 0; k < count; ++k) sums[k] += factor * static_cast<double>(to[k] - from[k]);
      }
      for (std::int64_t k = 0; k < count; ++k) cross[static_cast<std::size_t>(i * n + first + k)] += sums[k];
    }
  });
}

void damp(Triangle& hessian, double damping) {
  double mean = 0;
  for (std::int64_t i = 0; i < hessian.size(); ++i)
    mean += static_cast<double>(hessian.row(i).back()) / static_cast<double>(hessian.size());
  const double added = mean > 0 ? damping * mean : 1.0;
  for (std::int64_t i = 0; i < hessian.size(); ++i) {
    float& value = hessian.row(i).back();
    value = static_cast<float>(static_cast<double>(value) + added);
  }
}

Expected<void> invert_factor(Triangle& hessian) {
  const std::int64_t n = hessian.size();
  // Row by row, so that all inner products are over consecutive numbers (Cholesky-Banachiewicz). The row that is
  // computed is in float64.
  std::vector<double> current;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = hessian.row(i);
    current.assign(row.begin(), row.end());
    for (std::int64_t k = 0; k < i; ++k) {
      const auto other = hessian.row(k);
      double& value = current[static_cast<std::size_t>(k)];
      value = (value - inner_product(current.data(), other.data(), k)) / static_cast<double>(other.back());
    }
    double pivot = current.back();
    for (std::size_t j = 0; j < static_cast<std::size_t>(i); ++j) pivot -= current[j] * current[j];
    if (!(pivot > 0) || !std::isfinite(pivot))
      return Error{ErrorCode::kInvalidFile, "the Hessian of the calibration is not positive definite", "",
                   "activations overflow, or --damping is too small"};
    current.back() = std::sqrt(pivot);
    round_to(current, row);
  }
  std::vector<double> inverse;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = hessian.row(i);
    inverse.assign(row.size(), 0.0);
    const double last = 1 / static_cast<double>(row.back());
    for (std::int64_t k = 0; k < i; ++k) {
      const double share = -last * static_cast<double>(row[static_cast<std::size_t>(k)]);
      const auto above = hessian.row(k);  // of the inverse already
      for (std::size_t j = 0; j < above.size(); ++j) inverse[j] += share * static_cast<double>(above[j]);
    }
    inverse.back() = last;
    round_to(inverse, row);
  }
  return {};
}

std::vector<double> diagonal_blocks(const Triangle& hessian, std::int64_t size) {
  std::vector<double> blocks(static_cast<std::size_t>(hessian.size() * size));
  for (std::int64_t i = 0; i < hessian.size(); ++i) {
    const std::int64_t first = i / size * size;
    for (std::int64_t k = first; k <= i; ++k) {
      const auto value = static_cast<double>(hessian.row(i)[static_cast<std::size_t>(k)]);
      blocks[static_cast<std::size_t>(i * size + k - first)] = value;
      blocks[static_cast<std::size_t>(k * size + i - first)] = value;
    }
  }
  return blocks;
}

}  // namespace dllm
