#include "quant/hessian.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace dllm {
namespace {

constexpr std::int64_t kRowsAtOnce = 32;  // of x: they stay in the second-level cache while the triangle streams by

}  // namespace

void add_products(Triangle& hessian, const float* x, std::int64_t rows, ThreadPool& pool) {
  const std::int64_t n = hessian.size();
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t end = std::min(rows, first + kRowsAtOnce);
    parallel_items(pool, n, (end - first) * n / 2, [&](std::int64_t i, int) {
      double* const sums = hessian.row(i).data();
      for (std::int64_t r = first; r < end; ++r) {
        const float* const values = x + r * n;
        const auto factor = static_cast<double>(values[i]);
        if (factor == 0) continue;
        for (std::int64_t k = 0; k <= i; ++k) sums[k] += factor * static_cast<double>(values[k]);
      }
    });
  }
}

void add_differences(std::vector<double>& cross, const float* x, std::int64_t n, const float* a, const float* b,
                     std::int64_t m, std::int64_t rows, ThreadPool& pool) {
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t end = std::min(rows, first + kRowsAtOnce);
    parallel_items(pool, n, (end - first) * m, [&](std::int64_t i, int) {
      double* const sums = cross.data() + i * m;
      for (std::int64_t r = first; r < end; ++r) {
        const float *const from = a + r * m, *const to = b + r * m;
        const auto factor = static_cast<double>(x[r * n + i]);
        for (std::int64_t k = 0; k < m; ++k) sums[k] += factor * static_cast<double>(to[k] - from[k]);
      }
    });
  }
}

void damp(Triangle& hessian, double damping) {
  double mean = 0;
  for (std::int64_t i = 0; i < hessian.size(); ++i) mean += hessian.row(i).back() / static_cast<double>(hessian.size());
  const double added = mean > 0 ? damping * mean : 1.0;
  for (std::int64_t i = 0; i < hessian.size(); ++i) hessian.row(i).back() += added;
}

Expected<void> invert_factor(Triangle& hessian) {
  const std::int64_t n = hessian.size();
  // Row by row, so that all inner products are over consecutive numbers (Cholesky-Banachiewicz).
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = hessian.row(i);
    for (std::int64_t k = 0; k < i; ++k) {
      const auto other = hessian.row(k);
      double sum = row[static_cast<std::size_t>(k)];
      for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) sum -= row[j] * other[j];
      row[static_cast<std::size_t>(k)] = sum / other.back();
    }
    double pivot = row.back();
    for (std::size_t j = 0; j < static_cast<std::size_t>(i); ++j) pivot -= row[j] * row[j];
    if (!(pivot > 0) || !std::isfinite(pivot))
      return Error{ErrorCode::kInvalidFile, "the Hessian of the calibration is not positive definite", "",
                   "activations overflow, or --damping is too small"};
    row.back() = std::sqrt(pivot);
  }
  std::vector<double> factor;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = hessian.row(i);
    factor.assign(row.begin(), row.end());
    std::ranges::fill(row, 0.0);
    const double inverse = 1 / factor.back();
    for (std::int64_t k = 0; k < i; ++k) {
      const double share = -inverse * factor[static_cast<std::size_t>(k)];
      const auto above = hessian.row(k);  // of the inverse already
      for (std::size_t j = 0; j < above.size(); ++j) row[j] += share * above[j];
    }
    row.back() = inverse;
  }
  return {};
}

std::vector<double> diagonal_blocks(const Triangle& hessian, std::int64_t size) {
  std::vector<double> blocks(static_cast<std::size_t>(hessian.size() * size));
  for (std::int64_t i = 0; i < hessian.size(); ++i) {
    const std::int64_t first = i / size * size;
    for (std::int64_t k = first; k <= i; ++k) {
      const double value = hessian.row(i)[static_cast<std::size_t>(k)];
      blocks[static_cast<std::size_t>(i * size + k - first)] = value;
      blocks[static_cast<std::size_t>(k * size + i - first)] = value;
    }
  }
  return blocks;
}

}  // namespace dllm
