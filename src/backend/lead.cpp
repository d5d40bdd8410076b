#include "backend/lead.h"

#include <algorithm>

namespace dllm {
namespace {

/// Adds a position behind those of `ranges`.
void extend(std::vector<PositionRange>& ranges, Position position) {
  if (!ranges.empty() && ranges.back().end == position)
    ++ranges.back().end;
  else
    ranges.push_back({position, position + 1});
}

}  // namespace

bool leads(const StepPlan& plan, Position position) {
  return std::ranges::any_of(plan.lead, [position](const PositionRange& range) { return range.contains(position); });
}

std::vector<PositionRange> seen_behind_lead(const StepPlan& plan, Position position,
                                            std::span<const PositionRange> visible) {
  Position first = 0;
  for (const PositionRange& range : plan.apart)
    if (range.contains(position)) first = range.begin;
  std::vector<PositionRange> seen;
  for (const PositionRange& range : visible)
    for (Position p = range.begin; p < range.end; ++p)
      if ((p >= first && p <= position) || leads(plan, p)) extend(seen, p);
  return seen;
}

void lead_decided(const ModelDesc& desc, const KvCache& cache, StepPlan& plan) {
  if (!desc.decided_first) return;
  plan.lead.clear();
  auto row = plan.rows.begin();
  for (const PositionRange& range : plan.visible)
    for (Position p = range.begin; p < range.end; ++p) {
      while (row != plan.rows.end() && row->position < p) ++row;
      const TokenId token = row != plan.rows.end() && row->position == p ? row->token : cache.token_of(p);
      if (token != desc.mask) extend(plan.lead, p);
    }
}

}  // namespace dllm
