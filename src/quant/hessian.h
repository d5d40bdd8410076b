#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"

namespace dllm {

/// The lower triangle of a symmetric or triangular matrix, row by row, in float64: n (n + 1) / 2 numbers.
class Triangle {
 public:
  explicit Triangle(std::int64_t n) : n_(n), values_(static_cast<std::size_t>(n * (n + 1) / 2), 0.0) {}

  std::int64_t size() const { return n_; }
  /// Elements (i, 0) to (i, i).
  std::span<double> row(std::int64_t i) { return {values_.data() + i * (i + 1) / 2, static_cast<std::size_t>(i + 1)}; }
  std::span<const double> row(std::int64_t i) const {
    return {values_.data() + i * (i + 1) / 2, static_cast<std::size_t>(i + 1)};
  }

 private:
  std::int64_t n_;
  std::vector<double> values_;
};

/// Adds X^T X for `rows` rows of x, [rows][n]: the Hessian of |X (W - Q)^T|^2 in a row of W, up to a factor that
/// nothing depends on. Each element is added in the order of the rows, whatever the number of threads.
void add_products(Triangle& hessian, const float* x, std::int64_t rows, ThreadPool& pool);

/// Adds X^T (B - A) to `cross`, [n][m], for `rows` rows of x, [rows][n], and of a and b, [rows][m].
void add_differences(std::vector<double>& cross, const float* x, std::int64_t n, const float* a, const float* b,
                     std::int64_t m, std::int64_t rows, ThreadPool& pool);

/// Adds `damping` times the mean of the diagonal to the diagonal, so that the matrix can be inverted. Inputs that no
/// row used have only that: they are rounded to nearest and change nothing else.
void damp(Triangle& hessian, double damping);

/// Replaces H by the inverse of its Cholesky factor L (H = L L^T). Error: kInvalidFile, if H is not positive definite.
Expected<void> invert_factor(Triangle& hessian);

/// The blocks of `size` columns on the diagonal, whole: [block][size][size].
std::vector<double> diagonal_blocks(const Triangle& hessian, std::int64_t size);

}  // namespace dllm
