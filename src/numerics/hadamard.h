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

  /// The same for a transform of activations: no signs, and Paley's matrix, which costs as many additions per element
  /// as it has rows, of order kMostCore at most.
  static Expected<Hadamard> online(std::int64_t order);
  static constexpr std::int64_t kMostCore = 64;
  /// The largest divisor of `width` for which online() knows a matrix, with a limit (not 0) the largest power of two up
  /// to it; at least 1.
  static std::int64_t largest_online(std::int64_t width, std::int64_t limit);

  std::int64_t order() const { return order_; }
  std::int64_t core() const { return core_; }                        ///< order of Paley's matrix; 1: none
  std::span<const float> core_signs() const { return core_signs_; }  ///< [row][column], 1 or -1
  float scale() const { return static_cast<float>(scale_); }         ///< 1 / sqrt(n)

  /// x := x Q for a row vector of order() values; in float64, so that a float32 result is rounded once.
  void apply(std::span<double> x) const;
  /// x := x H scale() in float32, of a matrix without signs. The order of operations is part of the definition, for
  /// kernels (KernelSet::hadamard) and devices (C_HADAMARD_TRANSFORM) to have the same bits: sums and differences at
  /// distances core(), 2 core(), 4 core(), ...; in each run of core() values, the sum over Paley's rows from the first
  /// to the last, beginning with 0; then the product with scale(). Each operation rounds once.
  void apply(std::span<float> x) const;

 private:
  Hadamard() = default;
  std::int64_t order_ = 0;
  std::int64_t core_ = 1;
  std::vector<float> core_signs_;
  std::vector<std::int8_t> signs_;  ///< s
  double scale_ = 1;
};

}  // namespace dllm
