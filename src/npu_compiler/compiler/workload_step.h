#pragma once

#include "npu_compiler/compiler/step.h"

namespace dllm::npu {

/// A regular step: `batch` sequences of `context` positions of which the last `rows` run and are scored (a warm step:
/// rows = context, of which the last `scored` are scored).
struct StepWorkload {
  std::int64_t batch = 1, rows = 32, context = 32;
  std::int64_t scored = -1;  ///< per sequence; -1: all rows
};

/// The spec of a workload, with caches after the weights. Errors: kUsage (contradictory numbers, caches that do not fit
/// into memory).
Expected<StepSpec> make_step(const Graph& graph, const ModelLayout& layout, const StepWorkload& workload);

}  // namespace dllm::npu
