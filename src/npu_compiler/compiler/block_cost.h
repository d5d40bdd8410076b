#pragma once

#include <cstdint>
#include <span>

#include "dllm/error.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/energy.h"

namespace dllm::npu {

/// One of the two kinds of steps of a block.
struct PhaseCost {
  StepCost cost;
  StepCycles time;
  StepEnergy energy;
  double seconds = 0;  ///< of `time`
};

/// A block's time and energy on a device: a first step over all positions, then steps - 1 of refine_rows().
struct BlockCost {
  PhaseCost warm, refine;
  double seconds = 0, joules = 0;
  double tokens_per_second = 0, tokens_per_joule = 0;
  double serial_seconds = 0;  ///< without any overlap
};
/// `times`: of the model's shape. `parts`: check_feasible(). `alike`: as in CostModel::evaluate(), the same for both
/// graphs. Errors: those of StepTimes::time().
Expected<BlockCost> evaluate_block(StepTimes& times, const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload, const BlockParts& parts,
                                   std::span<const std::int32_t> alike = {});

}  // namespace dllm::npu
