#pragma once

#include <functional>
#include <span>

#include "backend/backend.h"
#include "npu/compiler/step.h"

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

/// The spec of a backend's batch, without sequences that have no rows. `cache`: HBM address of a sequence's K and V.
StepSpec spec_of(std::span<const SequenceStep> batch, const std::function<std::uint64_t(const SequenceStep&)>& cache);

}  // namespace dllm::npu
