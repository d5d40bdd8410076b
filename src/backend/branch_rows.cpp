#include "backend/branch_rows.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace dllm {
namespace {

/// Index of the row that the plan writes at a position.
std::optional<std::size_t> written_row(const StepPlan& plan, Position position) {
  const auto found = std::ranges::lower_bound(plan.rows, position, {}, &PlanRow::position);
  if (found == plan.rows.end() || found->position != position) return std::nullopt;
  return static_cast<std::size_t>(std::distance(plan.rows.begin(), found));
}

/// What any row of the plan may attend to.
std::vector<bool> visible_positions(const StepPlan& plan, Position capacity) {
  std::vector<bool> visible(static_cast<std::size_t>(capacity));
  const auto mark = [&visible](const std::vector<PositionRange>& ranges) {
    for (const PositionRange& range : ranges)
      std::fill(visible.begin() + range.begin, visible.begin() + range.end, true);
  };
  mark(plan.visible);
  for (const ShadowRow& shadow : plan.shadows) mark(shadow.visible);
  return visible;
}

}  // namespace

BranchRows branch_rows(std::span<const SequenceStep> batch) {
  BranchRows all;
  for (const SequenceStep& step : batch) {
    KvCache& cache = *step.cache;
    if (cache.parent() == nullptr) continue;
    const std::vector<bool> visible = visible_positions(step.plan, cache.capacity());
    for (Position p = 0; p < cache.capacity(); ++p) {
      if (!visible[static_cast<std::size_t>(p)]) continue;
      const KvCache* const holder = &cache.holder(p);
      if (holder == &cache || !cache.holds({p, p + 1})) continue;
      const auto writer = std::ranges::find(batch, holder, &SequenceStep::cache);
      const auto row = writer == batch.end() ? std::nullopt : written_row(writer->plan, p);
      if (row) {
        all.stores.push_back({static_cast<std::size_t>(std::distance(batch.begin(), writer)), *row, &cache});
      } else if (!all.copies.empty() && all.copies.back().from == holder && all.copies.back().to == &cache &&
                 all.copies.back().rows.end == p) {
        all.copies.back().rows.end = p + 1;
      } else {
        all.copies.push_back({holder, &cache, {p, p + 1}});
      }
    }
  }
  return all;
}

}  // namespace dllm
