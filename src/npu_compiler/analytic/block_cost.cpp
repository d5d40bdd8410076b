#include "npu_compiler/analytic/block_cost.h"

#include "base/try.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

StepLoad step_load(const Workload& w) {
  return {.sequences = w.batch, .keys = w.context, .fused_head = w.fused_head, .choices = w.choices};
}

Work work(const Device& device, const OperatorCost& cost) {
  const double tiles = cost.matrix / device.array.tile_cycles;
  const double vectors = cost.lane_ops / static_cast<double>(device.array.vlen);
  const double instructions = 3 * tiles + 2 * vectors;
  return {.macs = static_cast<double>(cost.macs),
          .matrix_cycles = cost.matrix,
          .lane_ops = cost.lane_ops,
          .read_bytes = cost.read_bytes,
          .write_bytes = cost.write_bytes,
          .instructions = instructions,
          .matrix_bytes_written = cost.read_bytes};
}

Expected<BlockCost> evaluate_block(const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload, std::optional<double> scheduled, std::int64_t parts,
                                   std::span<const std::int32_t> alike) {
  DLLM_CHECK_OK(check(workload));
  BlockCost block;
  block.scheduled = scheduled;
  DLLM_TRY(block.warm, model.evaluate(warm, step_load(workload), alike));
  StepLoad refinement = step_load(workload);
  refinement.parts = parts;
  DLLM_TRY(block.refine, model.evaluate(refine, refinement, alike));
  const Device& device = model.device();
  block.warm_seconds = block.warm.seconds(device);
  block.refine_seconds = scheduled ? *scheduled / (device.clock.ghz * 1e9) : block.refine.seconds(device);
  block.warm_energy = step_energy(device, work(device, block.warm.total), block.warm_seconds);
  block.refine_energy = step_energy(device, work(device, block.refine.total), block.refine_seconds);
  const auto refinements = static_cast<double>(workload.steps - 1);
  block.seconds = block.warm_seconds + refinements * block.refine_seconds;
  block.joules = block.warm_energy.total() + refinements * block.refine_energy.total();
  block.serial_seconds = (block.warm.total.serial + refinements * block.refine.total.serial) / (device.clock.ghz * 1e9);
  const auto tokens = static_cast<double>(workload.batch * workload.block);
  block.tokens_per_second = tokens / block.seconds;
  block.tokens_per_joule = tokens / block.joules;
  return block;
}

}  // namespace dllm::npu
