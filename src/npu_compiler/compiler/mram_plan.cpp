#include <algorithm>

#include "npu_compiler/compiler/layout.h"

namespace dllm::npu {

void plan_mram(ModelLayout& layout) {
  const MachineConfig& m = layout.machine;
  MramPlan& plan = layout.mram;
  plan.weight_rows = layout.mapping.weight_rows;
  plan.kv_rows = layout.mapping.kv_rows;
  std::uint64_t at = 0;
  for (auto& base : plan.weight) base = at, at += static_cast<std::uint64_t>(plan.weight_rows * m.mlen);
  for (auto& base : plan.kv) base = at, at += static_cast<std::uint64_t>(plan.kv_rows * m.mlen);
  plan.ones = at;
}

void plan_experts(ModelLayout& layout) {
  MramPlan& plan = layout.mram;
  if (plan.expert_slot_rows == 0) return;
  std::int64_t panel = 0;
  for (const WeightPlace& w : layout.weights)
    if (w.use == WeightUse::kMatrix && w.expert_stride == 0) panel = std::max(panel, w.matrix.panel * w.matrix.k_tiles);
  const ExpertRing ring = expert_ring(layout.mapping, plan.expert_slot_rows, panel);
  plan.experts_apart = ring.apart;
  plan.expert_slots = ring.slots;
  if (!plan.experts_apart) return;
  const auto elements = static_cast<std::uint64_t>(panel * layout.machine.mlen);
  plan.weight[1] = plan.weight[0] + elements;
  plan.experts = plan.weight[1] + elements;
}

}  // namespace dllm::npu
