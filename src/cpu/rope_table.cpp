#include "cpu/rope_table.h"

#include <cmath>

namespace dllm::cpu {

RopeTable::RopeTable(std::int64_t dims, float theta, float scale, std::span<const float> factors) {
  for (std::int64_t j = 0; j < dims / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dims);
    // Computed in double and rounded once: the nearest float, which powf only approximates.
    const auto power = static_cast<float>(std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
    float frequency = 1.f / power;
    if (!factors.empty()) frequency /= factors[static_cast<std::size_t>(j)];
    inverse_frequency_.push_back(frequency * scale);
  }
}

void RopeTable::grow(Position positions) {
  if (positions <= positions_) return;
  const std::size_t size = row(positions);
  cos_.resize(size);
  sin_.resize(size);
  for (Position p = positions_; p < positions; ++p)
    for (std::size_t j = 0; j < inverse_frequency_.size(); ++j) {
      const auto angle = static_cast<double>(static_cast<float>(p) * inverse_frequency_[j]);
      cos_[row(p) + j] = static_cast<float>(std::cos(angle));
      sin_[row(p) + j] = static_cast<float>(std::sin(angle));
    }
  positions_ = positions;
}

}  // namespace dllm::cpu
