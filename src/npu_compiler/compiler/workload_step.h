#pragma once

#include "npu_compiler/compiler/step.h"

namespace dllm::npu {

/// A regular step: `batch` sequences of `context` positions of which the last `rows` run and are scored (a warm step:
/// rows = context, of which the last `scored` are scored).
struct StepWorkload {
  std::int64_t batch = 1, rows = 32, context = 32;
  std::int64_t scored = -1;  ///< per sequence; -1: all rows
  // Of networks from outside.
  std::vector<std::int32_t> scored_rows = {};  ///< instead of the last `scored`, as many
  std::int64_t visible = -1;                   ///< positions that rows see, from the first on; -1: all
  std::int32_t causal_block = 0;               ///< as SequenceSpec::causal_block
};

/// The spec of a workload, with caches after the weights. Errors: kUsage (contradictory numbers, caches that do not fit
/// into memory).
Expected<StepSpec> make_step(const Graph& graph, const ModelLayout& layout, const StepWorkload& workload);

}  // namespace dllm::npu
