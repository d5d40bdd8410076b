#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_size.h"
#include "npu_compiler/compiler/step.h"

namespace dllm::npu {

/// What rows of networks from outside see, and which of them are scored.
struct NetworkRows {
  std::vector<std::int32_t> scored = {};  ///< instead of the last rows, as many as StepSize::scored
  std::int64_t visible = -1;              ///< positions that rows see, from the first on; -1: all
  std::int32_t causal_block = 0;          ///< as SequenceSpec::causal_block
};

/// A step of equal sequences, without addresses of caches. Errors: kUsage (contradictory numbers).
Expected<StepSpec> step_of(const StepSize& size, const NetworkRows& network = {});

/// The spec of a step of equal sequences, with caches of `size.keys` positions after the weights. Errors: kUsage
/// (contradictory numbers, caches that do not fit into memory).
Expected<StepSpec> make_step(const Graph& graph, const ModelLayout& layout, const StepSize& size,
                             const NetworkRows& network = {});

}  // namespace dllm::npu
