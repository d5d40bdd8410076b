#pragma once

#include <functional>
#include <span>

#include "backend/backend.h"
#include "npu_compiler/compiler/step.h"

namespace dllm::npu {

/// The spec of a backend's batch, without sequences that have no rows. `cache`: HBM address of a sequence's K and V.
StepSpec spec_of(std::span<const SequenceStep> batch, const std::function<std::uint64_t(const SequenceStep&)>& cache);

}  // namespace dllm::npu
