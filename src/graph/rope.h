#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "graph/graph.h"

namespace dllm {

/// Radians per position of each of the dims/2 pairs. Rounded as PyTorch's float32 reference rounds: theta^(2j/dims) and
/// its inverse are float32. `factors`: the values of op::Rope::factors, or empty.
std::vector<float> rope_frequencies(const op::Rope& rope, std::span<const float> factors);

/// What cos and sin are multiplied by at a position.
double rope_magnitude(const op::Rope& rope, Position position);

}  // namespace dllm
