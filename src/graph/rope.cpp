#include "graph/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dllm {
namespace {

/// The pair that turns `turns` times within the original context: 2 pi turns = L theta^(-2j/dims) solved for j.
double pair_of(const op::Rope& rope, double turns) {
  const double length = static_cast<double>(rope.yarn.original_context);
  return rope.dims * std::log(length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(rope.theta)));
}

/// How much of a pair's frequency is divided by the factor: 0 for fast pairs, 1 for slow ones. The ends are whole pairs
/// within the head, and a ramp has some width, as in the references.
std::vector<float> yarn_ramp(const op::Rope& rope) {
  const auto low =
      static_cast<float>(std::max(0.0, std::floor(pair_of(rope, static_cast<double>(rope.yarn.beta_fast)))));
  auto high =
      static_cast<float>(std::min(rope.dims - 1.0, std::ceil(pair_of(rope, static_cast<double>(rope.yarn.beta_slow)))));
  if (low == high) high += 0.001f;
  std::vector<float> ramp;
  for (std::int32_t j = 0; j < rope.dims / 2; ++j)
    ramp.push_back(std::clamp((static_cast<float>(j) - low) / (high - low), 0.f, 1.f));
  return ramp;
}

}  // namespace

std::vector<float> rope_frequencies(const op::Rope& rope, std::span<const float> factors) {
  const bool stretched = rope.yarn.factor != 1.f;
  const std::vector<float> ramp = stretched ? yarn_ramp(rope) : std::vector<float>();
  std::vector<float> frequencies;
  for (std::int32_t j = 0; j < rope.dims / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(rope.dims);
    // In double and rounded once: the nearest float to what powf approximates.
    const auto power = static_cast<float>(std::pow(static_cast<double>(rope.theta), static_cast<double>(exponent)));
    float frequency = 1.f / power;
    if (stretched) {
      const float kept = 1.f - ramp[static_cast<std::size_t>(j)];
      frequency = 1.f / (rope.yarn.factor * power) * (1.f - kept) + frequency * kept;
    }
    if (!factors.empty()) frequency /= factors[static_cast<std::size_t>(j)];
    frequencies.push_back(frequency * rope.scale);
  }
  return frequencies;
}

double rope_magnitude(const op::Rope& rope, Position position) {
  const auto magnitude = static_cast<double>(rope.yarn.magnitude);
  if (rope.growth.beta == 0.f) return magnitude;
  const double times = std::floor(position / static_cast<double>(rope.growth.length));
  return magnitude * (1 + static_cast<double>(rope.growth.beta) * std::log1p(times));
}

}  // namespace dllm
