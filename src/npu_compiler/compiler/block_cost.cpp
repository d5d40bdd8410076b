#include "npu_compiler/compiler/block_cost.h"

#include "base/try.h"
#include "npu_compiler/analytic/operator_work.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

/// A step of a block: the first, which warms the cache, or one that refines.
struct PhaseStep {
  const Graph& graph;
  StepSize size;
  std::span<const RowPart> parts;
};

Expected<PhaseCost> evaluate_phase(StepTimes& times, const CostModel& model, const Workload& workload,
                                   const PhaseStep& step, const Mapping* mapping, std::span<const std::int32_t> alike) {
  PhaseCost phase;
  CostAssumptions load = assumptions_of(workload);
  load.parts = static_cast<std::int64_t>(step.parts.size());
  DLLM_TRY(phase.cost, model.evaluate(step.graph, load, alike));
  DLLM_TRY(phase.time, times.time(model,
                                  {.step = step.size,
                                   .choices = workload.choices,
                                   .logits = !workload.fused_head,
                                   .mapping = mapping,
                                   .parts = step.parts},
                                  phase.cost));
  const Device& device = model.device();
  phase.seconds = phase.time.seconds(device);
  phase.energy = step_energy(device, work(device, phase.cost.total), phase.seconds);
  return phase;
}

}  // namespace

Expected<BlockCost> evaluate_block(StepTimes& times, const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload, const BlockParts& parts,
                                   std::span<const std::int32_t> alike) {
  DLLM_CHECK_OK(check(workload));
  const Mapping* const mapping = parts.mapping ? &*parts.mapping : nullptr;
  BlockCost block;
  DLLM_TRY(block.warm, evaluate_phase(times, model, workload, {warm, warm_step(workload), parts.warm}, mapping, alike));
  DLLM_TRY(block.refine,
           evaluate_phase(times, model, workload, {refine, refine_step(workload), parts.refine}, mapping, alike));
  const Device& device = model.device();
  const auto refinements = static_cast<double>(workload.steps - 1);
  block.seconds = block.warm.seconds + refinements * block.refine.seconds;
  block.joules = block.warm.energy.total() + refinements * block.refine.energy.total();
  block.serial_seconds =
      (block.warm.cost.total.serial + refinements * block.refine.cost.total.serial) / (device.clock.ghz * 1e9);
  const auto tokens = static_cast<double>(workload.batch * workload.block);
  block.tokens_per_second = tokens / block.seconds;
  block.tokens_per_joule = tokens / block.joules;
  return block;
}

}  // namespace dllm::npu
