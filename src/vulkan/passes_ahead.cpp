#include "vulkan/passes_ahead.h"

#include <algorithm>
#include <utility>

namespace dllm::vulkan {
namespace {

/// The values of all members, also of those that Sampling gets one day.
std::vector<double> members(const Sampling& sampling) {
  std::vector<double> all;
  Sampling::each(sampling, [&](const auto& member) { all.push_back(static_cast<double>(member)); });
  return all;
}

bool same_request(const ScoreRequest& a, const ScoreRequest& b) {
  return members(a) == members(b) && a.distribution == b.distribution && a.rules == b.rules &&
         a.adjustments.tokens.empty() && a.queries.empty() && a.top_tokens == b.top_tokens && !a.logits && !a.hidden;
}

bool same_setting(const SequenceStep& step, const SequenceStep& last) {
  const StepPlan &a = step.plan, &b = last.plan;
  return a.visible == b.visible && a.causal_block == b.causal_block && a.region == b.region && a.mixtures.empty() &&
         a.hidden.empty() && a.shadows.empty() && a.given.empty() && a.groups.empty() && a.columns == b.columns &&
         a.lead.empty() && !step.guidance && same_request(step.request, last.request);
}

}  // namespace

std::optional<Scores> PassesAhead::take(const SequenceStep& step) {
  if (passes.empty() || !same_setting(step, last) || step.plan.rows != passes.front().rows) return std::nullopt;
  AheadPass& next = passes.front();
  // All rows that were masks at first are scored in each of the passes.
  Scores scores;
  for (const std::int32_t index : step.plan.scored) {
    const Position position = step.plan.rows[static_cast<std::size_t>(index)].position;
    const auto found = std::ranges::lower_bound(next.scores.rows, position, {}, &RowScore::position);
    if (found == next.scores.rows.end() || found->position != position) return std::nullopt;
    scores.rows.push_back(*found);
  }
  last.plan.rows = std::move(next.rows);
  passes.pop_front();
  return scores;
}

std::vector<PlanRow> rows_after(const StepPlan& plan, std::span<const PlanRow> rows, Position shift,
                                std::span<const std::int32_t> committed) {
  std::vector<PlanRow> next(rows.begin(), rows.end());
  for (std::size_t i = 0; i < plan.scored.size(); ++i) {
    if (committed[i] < 0) continue;
    const Position predicted = plan.row(plan.scored[i]).position + shift;
    const auto row = std::ranges::lower_bound(next, predicted, {}, &PlanRow::position);
    if (row != next.end() && row->position == predicted) row->token = committed[i];
  }
  return next;
}

}  // namespace dllm::vulkan
