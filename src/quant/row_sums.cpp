#include "quant/row_sums.h"

#include <algorithm>
#include <cstddef>

#include "base/clones.h"

namespace dllm {
namespace {

DLLM_CLONES void add_four(double* __restrict to, const double* factors, const float* const* rows, std::int64_t count) {
  const float *const a = rows[0], *const b = rows[1], *const c = rows[2], *const d = rows[3];
  const double fa = factors[0], fb = factors[1], fc = factors[2], fd = factors[3];
  for (std::int64_t k = 0; k < count; ++k)
    to[k] =
        (((to[k] + fa * static_cast<double>(a[k])) + fb * static_cast<double>(b[k])) + fc * static_cast<double>(c[k])) +
        fd * static_cast<double>(d[k]);
}

DLLM_CLONES void add_one(double* __restrict to, double factor, const float* row, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) to[k] += factor * static_cast<double>(row[k]);
}

/// A whole tile: its sums stay in registers.
DLLM_CLONES void sum_tile(const float* factors, const float* x, std::int64_t stride, std::int64_t rows,
                          double (&sums)[kProductTile]) {
  double own[kProductTile] = {};
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto factor = static_cast<double>(factors[r * stride]);
    const float* const values = x + r * stride;
    for (std::int64_t k = 0; k < kProductTile; ++k) own[k] += factor * static_cast<double>(values[k]);
  }
  std::copy_n(own, kProductTile, sums);
}

}  // namespace

void add_rows(double* to, std::span<const double> factors, const float* const* rows, std::int64_t count) {
  if (factors.size() == kSumRows) return add_four(to, factors.data(), rows, count);
  for (std::size_t r = 0; r < factors.size(); ++r) add_one(to, factors[r], rows[r], count);
}

DLLM_CLONES void sum_products(const double* a, const float* const (&rows)[kSumRows], std::int64_t count,
                              double (&sums)[kSumRows][kSumLanes]) {
  double own[kSumRows][kSumLanes] = {};
  for (std::int64_t i = 0; i < count; i += kSumLanes)
#pragma GCC unroll 4
    for (int r = 0; r < kSumRows; ++r)
      for (int lane = 0; lane < kSumLanes; ++lane) own[r][lane] += a[i + lane] * static_cast<double>(rows[r][i + lane]);
  for (int r = 0; r < kSumRows; ++r) std::copy_n(own[r], kSumLanes, sums[r]);
}

void sum_columns(const float* factors, const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count,
                 double (&sums)[kProductTile]) {
  if (count == kProductTile) return sum_tile(factors, x, stride, rows, sums);
  std::fill_n(sums, count, 0.0);
  for (std::int64_t r = 0; r < rows; ++r)
    add_one(sums, static_cast<double>(factors[r * stride]), x + r * stride, count);
}

}  // namespace dllm
