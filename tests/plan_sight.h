#pragma once

#include <algorithm>

#include "backend/step_plan.h"

namespace dllm::test {

/// Who sees whom, as StepPlan defines it, windows and groups apart: whether the row at `i`, or the shadow row there,
/// attends to position j.
inline bool plan_shows(const StepPlan& plan, Position i, const ShadowRow* shadow, Position j) {
  const auto has = [](const std::vector<PositionRange>& ranges, Position p) {
    return std::ranges::any_of(ranges, [p](const PositionRange& range) { return range.contains(p); });
  };
  if (!has(shadow != nullptr ? shadow->visible : plan.visible, j)) return false;
  const bool leads = shadow == nullptr && has(plan.lead, i);
  if (leads && !has(plan.lead, j)) return false;
  if (!leads && has(plan.lead, j)) return true;
  for (const PositionRange& range : plan.apart)
    if (!leads && range.contains(i) && !range.contains(j)) return false;
  return plan.causal_block == 0 || j / plan.causal_block <= i / plan.causal_block;
}

}  // namespace dllm::test
