#pragma once

#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"
#include "model/source.h"

namespace dllm {

/// Whether a shape is the declared one, or the same with trailing ones, which some writers keep.
bool same_shape(const Shape& found, const Shape& declared);

/// Checks the tensors against the weights that a graph of its architecture declares, without reading any weight. Errors
/// name the tensor: missing, of another shape, of a type that the executors do not take there, or unknown to the
/// architecture (running without it would be silently wrong).
Expected<void> check_tensors(const Graph& graph, const std::vector<SourceTensor>& tensors);

}  // namespace dllm
