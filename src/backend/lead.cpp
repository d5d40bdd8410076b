#include "backend/lead.h"

#include <algorithm>

#include "backend/position_ranges.h"

namespace dllm {

bool leads(const StepPlan& plan, Position position) {
  return std::ranges::any_of(plan.lead, [position](const PositionRange& range) { return range.contains(position); });
}

std::vector<PositionRange> seen_behind_lead(const StepPlan& plan, Position position,
                                            std::span<const PositionRange> visible) {
  Position first = 0;
  for (const PositionRange& range : plan.apart)
    if (range.contains(position)) first = range.begin;
  std::vector<PositionRange> seen = plan.lead;
  unite(seen, {first, position + 1});
  return common(seen, visible);
}

void lead_decided(const ModelDesc& desc, const KvCache& cache, StepPlan& plan) {
  if (!desc.decided_first) return;
  plan.lead.clear();
  auto row = plan.rows.begin();
  for (const PositionRange& range : plan.visible)
    for (Position p = range.begin; p < range.end; ++p) {
      while (row != plan.rows.end() && row->position < p) ++row;
      const TokenId token = row != plan.rows.end() && row->position == p ? row->token : cache.token_of(p);
      if (token != desc.mask) append(plan.lead, p);
    }
}

}  // namespace dllm
