#pragma once

#include "dllm/error.h"
#include "graph/split.h"
#include "model/weights.h"

namespace dllm::cpu {

/// Views of a rank's parts of the weights of the whole graph, which fit it. Errors: kUnsupported (a vector in blocks
/// that a part would cut).
Expected<Weights> rank_weights(const RankGraph& rank, const Weights& whole);

}  // namespace dllm::cpu
