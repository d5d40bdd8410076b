#include <algorithm>

#include "npu_compiler/compiler/layout.h"

namespace dllm::npu {

void plan_mram(ModelLayout& layout) {
  const MachineConfig& m = layout.machine;
  const auto rows = static_cast<std::int64_t>(m.mram_elements) / m.mlen;
  const std::int64_t unit = std::max(m.blen, m.hlen);
  MramPlan& plan = layout.mram;
  plan.weight_rows = rows * 3 / 8 / unit * unit;
  const std::int64_t ones = m.smoothing.values == SmoothingCentre::kNone ? 0 : m.hlen;
  plan.kv_rows = (rows - 2 * plan.weight_rows - ones) / 2 / unit * unit;
  std::uint64_t at = 0;
  for (auto& base : plan.weight) base = at, at += static_cast<std::uint64_t>(plan.weight_rows * m.mlen);
  for (auto& base : plan.kv) base = at, at += static_cast<std::uint64_t>(plan.kv_rows * m.mlen);
  plan.ones = at;
}

void plan_experts(ModelLayout& layout) {
  constexpr std::int64_t kMostSlots = 8;
  MramPlan& plan = layout.mram;
  if (plan.expert_slot_rows == 0) return;
  std::int64_t panel = 0;
  for (const WeightPlace& w : layout.weights)
    if (w.use == WeightUse::kMatrix && w.expert_stride == 0) panel = std::max(panel, w.matrix.panel * w.matrix.k_tiles);
  const std::int64_t all = 2 * plan.weight_rows, apart = (all - 2 * panel) / plan.expert_slot_rows;
  plan.experts_apart = apart >= 2;
  plan.expert_slots = std::min(plan.experts_apart ? apart : all / plan.expert_slot_rows, kMostSlots);
  if (!plan.experts_apart) return;
  const auto elements = static_cast<std::uint64_t>(panel * layout.machine.mlen);
  plan.weight[1] = plan.weight[0] + elements;
  plan.experts = plan.weight[1] + elements;
}

}  // namespace dllm::npu
