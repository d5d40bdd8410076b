#pragma once

#include "graph/graph.h"
#include "graph/step_size.h"
#include "model/model_desc.h"
#include "model/weights.h"

namespace dllm::app {

/// The minimum work of one step, from the graph and the sizes: the numerators of GOP/s and GB/s. A multiply and an add
/// are two operations. Elementwise work, norms, softmax and RoPE are left out (below 1 % of an 8B step).
struct StepWork {
  double linear_ops = 0;     ///< 2 x rows x k x n of every matrix
  double head_ops = 0;       ///< 2 x scored x k x vocabulary
  double attention_ops = 0;  ///< 4 x head_dim x heads x (row, visible key) pairs
  double weight_bytes = 0;   ///< every matrix once, and the head if a row is scored
  double ops() const { return linear_ops + head_ops + attention_ops; }
};

/// Of a step whose rows see all earlier positions, as far as the model's mask permits.
StepWork work_of(const Graph& graph, const Weights& weights, const ModelDesc& desc, const StepSize& size);

/// The element type of the model's matrices: the one with most of their bytes.
TensorType main_type(const Graph& graph, const Weights& weights);

}  // namespace dllm::app
