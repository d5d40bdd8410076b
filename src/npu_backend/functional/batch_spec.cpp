#include "npu_backend/functional/batch_spec.h"

#include "npu_core/device/smoothing.h"

namespace dllm::npu {

StepSpec spec_of(std::span<const SequenceStep> batch, const std::function<std::uint64_t(const SequenceStep&)>& cache) {
  StepSpec spec;
  for (const SequenceStep& step : batch) {
    if (step.plan.rows.empty()) continue;
    SequenceSpec s;
    for (const PlanRow& row : step.plan.rows) s.positions.push_back(row.position);
    s.visible = step.plan.visible;
    s.causal_block = step.plan.causal_block;
    s.canvas = step.plan.region == dllm::Region::kCanvas;
    s.scored = step.plan.scored;
    s.cache = cache(step);
    s.capacity = step.cache->capacity();
    std::int64_t seen = 0;
    for (const PositionRange& range : s.visible) seen += range.size();
    s.takes_statistics =
        takes_statistics(static_cast<std::int64_t>(s.positions.size()), seen) || step.cache->epoch() == 0;
    spec.sequences.push_back(std::move(s));
  }
  return spec;
}

}  // namespace dllm::npu
