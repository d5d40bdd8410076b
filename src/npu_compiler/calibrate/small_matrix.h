#pragma once

#include <cstddef>
#include <vector>

namespace dllm::npu {

/// A symmetric matrix of a few rows.
class SmallMatrix {
 public:
  explicit SmallMatrix(std::size_t n) : n_(n), cells_(n * n, 0) {}
  double& at(std::size_t i, std::size_t j) { return cells_[i * n_ + j]; }
  double at(std::size_t i, std::size_t j) const { return cells_[i * n_ + j]; }
  std::size_t size() const { return n_; }

 private:
  std::size_t n_;
  std::vector<double> cells_;
};

/// Least z'Hz/2 - g'z with z >= 0 (Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23).
/// Precondition: H is positive definite.
std::vector<double> non_negative(const SmallMatrix& h, const std::vector<double>& g);

/// Eigenvalues and -vectors (columns) by Jacobi's rotations.
struct Eigen {
  std::vector<double> values;
  SmallMatrix vectors;
};
Eigen eigen(SmallMatrix a);

}  // namespace dllm::npu
