#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "dllm/error.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/energy.h"

namespace dllm::npu {

/// The load of both kinds of steps.
StepLoad step_load(const Workload& workload);

/// The same work in the energy model's terms. Instructions are estimated: three per tile of the array, two per vector
/// instruction.
Work work(const Device& device, const OperatorCost& cost);

/// A block's time and energy on a device: a first step over all positions, then steps - 1 of refine_rows().
struct BlockCost {
  StepCost warm, refine;
  StepEnergy warm_energy, refine_energy;
  double warm_seconds = 0, refine_seconds = 0;  ///< of a step
  std::optional<double> scheduled;              ///< cycles of a refinement step, if it has a schedule
  double seconds = 0, joules = 0;
  double tokens_per_second = 0, tokens_per_joule = 0;
  double serial_seconds = 0;  ///< without any overlap
};
/// `scheduled`: cycles of a step after the first in the compiler's schedule (refine_schedule.h); without it, the bound
/// with all units overlapped is used. `parts`: of that step, as in StepLoad. `alike`: as in CostModel::evaluate(), the
/// same for both graphs.
Expected<BlockCost> evaluate_block(const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload, std::optional<double> scheduled = std::nullopt,
                                   std::int64_t parts = 0, std::span<const std::int32_t> alike = {});

}  // namespace dllm::npu
