#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "model/weights.h"

namespace dllm {

/// What op::Route chooses for `logits`, [rows][experts]: `out` as it describes it, [rows][2 used]. `bias` and `scale`
/// have a number per expert, or none. `runs`: the first rows of the blocks of block routing, and the number of rows.
void route_rows(const op::Route& o, std::span<const float> logits, std::int64_t experts, std::span<const float> bias,
                std::span<const float> scale, std::span<const std::int64_t> runs, std::span<float> out);

/// The share of an expert in a row's output; 0, if the row does not use it. `route`: the row as route_rows() writes it.
float expert_share(std::span<const float> route, std::int64_t expert);

/// One matrix of a stack.
WeightView expert_matrix(const WeightView& stack, std::int64_t expert);

/// The inputs of an expert's last product: activation(gate x) * (up x) of each row of x, and the transform of
/// op::Experts.
std::vector<float> expert_inner(const op::Experts& o, const WeightView& gate, const WeightView& up,
                                std::span<const float> x, ThreadPool& pool);

}  // namespace dllm
