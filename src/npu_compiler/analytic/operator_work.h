#pragma once

#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/energy.h"

namespace dllm::npu {

/// Of both kinds of steps of a workload.
CostAssumptions assumptions_of(const Workload& workload);

/// An operator's work in the energy model's terms. Instructions are estimated: three per tile of the array, two per
/// vector instruction.
Work work(const Device& device, const OperatorCost& cost);

}  // namespace dllm::npu
