#pragma once

#include <cstdint>
#include <span>

// The inner loops of a calibration, over rows of float32 with sums in float64. The order in which an element's terms
// are added is part of each definition, so the bits depend neither on the processor nor on how a caller cuts its loops.

namespace dllm {

inline constexpr int kSumRows = 4;   ///< rows that a call combines at most
inline constexpr int kSumLanes = 8;  ///< partial sums of an inner product

/// to[k] += factors[0] rows[0][k], then += factors[1] rows[1][k] and so on, for k < `count`. At most kSumRows rows,
/// which do not overlap `to`.
void add_rows(double* to, std::span<const double> factors, const float* const* rows, std::int64_t count);

/// Partial sums of the inner products of `a` with four rows: lane i % 8 has the terms i, in ascending order. `count` is
/// a multiple of 8; the sums begin at zero.
void sum_products(const double* a, const float* const (&rows)[kSumRows], std::int64_t count,
                  double (&sums)[kSumRows][kSumLanes]);

/// sums[k] = the sum over r, ascending, of factors[r * stride] x[r * stride + k], for k < `count` <= kProductTile.
inline constexpr std::int64_t kProductTile = 64;
void sum_columns(const float* factors, const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count,
                 double (&sums)[kProductTile]);

}  // namespace dllm
