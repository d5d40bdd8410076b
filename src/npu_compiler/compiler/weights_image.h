#pragma once

#include <functional>
#include <span>

#include "model/weights.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/step.h"
#include "npu_core/machine/arithmetic.h"

namespace dllm::npu {

/// The layout of a graph with these weights (layout.h), by WeightId. Errors: also kInvalidFile (another number of
/// weights than the graph's).
Expected<ModelLayout> make_layout(const Graph& graph, const Weights& weights, const MachineConfig& machine,
                                  std::int64_t positions);

/// Writes a model's weights in the layout's formats: matrices quantized in panels, rows, tables and RoPE's
/// factors in the lanes' format. Matrices that are in tiles already are
/// copied. `hbm` is the memory from address 0; `weights` by WeightId.
void write_weights(const Graph& graph, const ModelLayout& layout, const Weights& weights, std::byte* hbm);

/// Writes one matrix of the layout; `hbm` is the memory from address 0.
void write_matrix(const WeightPlace& place, const WeightView& view, const MachineConfig& m, std::byte* hbm);

/// RoPE's cos and sin of one position as the program's rows hold them: [tables][VLEN].
std::vector<Bf16> rope_row(const RopePlace& rope, const MachineConfig& machine, std::span<const float> factors,
                           Position position);

}  // namespace dllm::npu
