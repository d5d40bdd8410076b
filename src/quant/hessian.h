#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"

namespace dllm {

/// The lower triangle of a symmetric or triangular matrix, row by row, n (n + 1) / 2 numbers. They are float32, as this
/// is the largest thing that a calibration holds: one of 6144 columns has 75 MB, and in float64 it would be larger than
/// all weights of its layer. Sums over them are in float64 everywhere, so what is lost is one rounding to 24 bits per
/// element and call, far below the damping.
class Triangle {
 public:
  explicit Triangle(std::int64_t n) : n_(n), values_(static_cast<std::size_t>(n * (n + 1) / 2), 0.0f) {}

  std::int64_t size() const { return n_; }
  /// Elements (i, 0) to (i, i).
  std::span<float> row(std::int64_t i) { return {values_.data() + i * (i + 1) / 2, static_cast<std::size_t>(i + 1)}; }
  std::span<const float> row(std::int64_t i) const {
    return {values_.data() + i * (i + 1) / 2, static_cast<std::size_t>(i + 1)};
  }

 private:
  std::int64_t n_;
  std::vector<float> values_;
};

/// Adds X^T X for the rows of x, [rows][n]: the Hessian of |X (W - Q)^T|^2 in a row of W, up to a factor that nothing
/// depends on. The products of a call are added up in float64, in the order of the rows, whatever the number of
/// threads, and then rounded once per element.
void add_products(Triangle& hessian, std::span<const float> x, ThreadPool& pool);

/// Adds X^T (Y - X) to `cross`, [n][n], for the rows of x and y, [rows][n].
void add_differences(std::span<double> cross, std::span<const float> x, std::span<const float> y, std::int64_t n,
                     ThreadPool& pool);

/// Adds `damping` times the mean of the diagonal to the diagonal, so that the matrix can be inverted. Inputs that no
/// row used have only that: they are rounded to nearest and change nothing else.
void damp(Triangle& hessian, double damping);

/// Replaces H by the inverse of its Cholesky factor L (H = L L^T). Error: kInvalidFile, if H is not positive definite.
/// The same bits for any number of threads.
Expected<void> invert_factor(Triangle& hessian, ThreadPool& pool);

/// The blocks of `size` columns on the diagonal, whole: [block][size][size].
std::vector<double> diagonal_blocks(const Triangle& hessian, std::int64_t size);

}  // namespace dllm
