#pragma once

#include "dllm/error.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/runtime/memory_plan.h"

namespace dllm::npu {

/// The window, staging buffer and mapping costs of a device profile. Errors: kUnsupported for a device that can address
/// all of its memory.
Expected<MemoryLimits> memory_limits(const Device& device);

/// A denoising step as a program for the planner: weights in the device's format, each of which may be staged in panels
/// of BLEN outputs (a stack of experts: expert by expert); keys and values of `load.keys` positions of each sequence;
/// and the activations between operators. Times are those of `cost`, operator by operator. Not included: the embedding
/// table, whose rows the host looks up; weights that a file may lack (biases); the logits.
MemoryProgram step_program(const Graph& graph, const Device& device, const CostAssumptions& load, const StepCost& cost);

}  // namespace dllm::npu
