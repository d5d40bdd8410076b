#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/cpu_kv_cache.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "numerics/tensor_type.h"

// What a model's graph says about memory, for every backend that has the CPU's weights and cache types.

namespace dllm::cpu {

/// Whether the weights are those that the graph reads. Errors: kInvalidFile, with the tensor.
Expected<void> check_weights(const Graph& graph, const Weights& weights);

/// The type of K and V that `type` means for a model.
TensorType storage_type(CpuKvType type, const Graph& graph, const Weights& weights);

/// Its name among the options: "f16".
std::string_view storage_name(TensorType type);

/// K and V of every layer. Errors: kUsage (blocks of `type` do not divide a head).
Expected<std::vector<KvShape>> kv_shapes(const Graph& graph, TensorType type);

}  // namespace dllm::cpu
