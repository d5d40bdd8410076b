#include "cpu/rope_table.h"

#include <cmath>

#include "graph/rope.h"

namespace dllm::cpu {

RopeTable::RopeTable(const op::Rope& rope, std::span<const float> factors)
    : rope_(rope), inverse_frequency_(rope_frequencies(rope, factors)) {}

void RopeTable::grow(Position positions) {
  if (positions <= positions_) return;
  const std::size_t size = row(positions);
  cos_.resize(size);
  sin_.resize(size);
  for (Position p = positions_; p < positions; ++p) {
    const double magnitude = rope_magnitude(rope_, p);
    for (std::size_t j = 0; j < inverse_frequency_.size(); ++j) {
      const auto angle = static_cast<double>(static_cast<float>(p) * inverse_frequency_[j]);
      cos_[row(p) + j] = static_cast<float>(magnitude * std::cos(angle));
      sin_[row(p) + j] = static_cast<float>(magnitude * std::sin(angle));
    }
  }
  positions_ = positions;
}

}  // namespace dllm::cpu
