#include "npu_compiler/analytic/operator_work.h"

#include "npu_core/device/device.h"

namespace dllm::npu {

CostAssumptions assumptions_of(const Workload& w) {
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

}  // namespace dllm::npu
