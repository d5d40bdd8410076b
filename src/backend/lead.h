#pragma once

#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/step_plan.h"
#include "model/model_desc.h"

namespace dllm {

/// Whether the position is in StepPlan::lead.
bool leads(const StepPlan& plan, Position position);

/// What a row that does not lead sees of `visible`: sorted, disjoint.
std::vector<PositionRange> seen_behind_lead(const StepPlan& plan, Position position,
                                            std::span<const PositionRange> visible);

/// Of models in which what is decided comes before the masks (ModelDesc::decided_first): fills StepPlan::lead from the
/// tokens that the plan's rows show, and from those that the other visible rows of `cache` were computed from. Other
/// plans stay as they are.
void lead_decided(const ModelDesc& desc, const KvCache& cache, StepPlan& plan);

}  // namespace dllm
