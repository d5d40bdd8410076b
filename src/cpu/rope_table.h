#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "graph/graph.h"

namespace dllm::cpu {

/// cos and sin of every position so far, for one RoPE specification. Grow-only: after the first steps of a generation
/// no trigonometry is computed.
///
/// Rounded as in PyTorch's float32 reference: inv_freq = 1 / theta^(2j/dims) and the angle position * inv_freq are
/// float32 (at position 4096 the angle is off by up to 2e-4 of a radian, and every reference shares that error), only
/// then cos and sin, here in double and rounded once.
class RopeTable {
 public:
  /// `factors`: dims/2 divisors of the frequencies, or empty.
  RopeTable(const op::Rope& rope, std::span<const float> factors);

  /// Makes rows [0, positions) valid; throws std::bad_alloc.
  void grow(Position positions);
  const float* cos(Position position) const { return cos_.data() + row(position); }
  const float* sin(Position position) const { return sin_.data() + row(position); }

 private:
  std::size_t row(Position position) const { return static_cast<std::size_t>(position) * inverse_frequency_.size(); }

  op::Rope rope_;
  std::vector<float> inverse_frequency_;
  std::vector<float> cos_, sin_;  // [position][dims / 2]
  Position positions_ = 0;
};

}  // namespace dllm::cpu
