#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// An orthonormal matrix Q = diag(s) H / sqrt(n) with a Hadamard matrix H of order n and signs s, as QuaRot uses it
/// (Ashkboos et al. 2024, arXiv:2404.00456). H is the Kronecker product of Sylvester's matrix of order 2^k and, for
/// other orders, of one of Paley's: n = 2^k, 12 * 2^k (3072, 12288), 20 * 2^k (2560, 5120), 28 * 2^k (3584, 14336) and
/// others whose odd part allows one.
class Hadamard {
 public:
  /// `seed`: of the signs; 0: all are positive. Errors: kUnsupported, if this class knows no such matrix.
  static Expected<Hadamard> create(std::int64_t order, std::uint64_t seed);

  std::int64_t order() const { return order_; }
  /// x := x Q for a row vector of order() values; in float64, so that a float32 result is rounded once.
  void apply(std::span<double> x) const;

 private:
  Hadamard() = default;
  std::int64_t order_ = 0;
  std::int64_t core_ = 1;                ///< order of Paley's matrix, 1: none
  std::vector<std::int8_t> core_signs_;  ///< [row][column]
  std::vector<std::int8_t> signs_;       ///< s
  double scale_ = 1;
};

}  // namespace dllm
