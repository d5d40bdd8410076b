#include "decode/loop/pass_planner.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "backend/position_ranges.h"
#include "base/integers.h"

namespace dllm {
namespace {

/// The policy's rows, those that predict wanted positions, and those that are visible but were never forwarded (a
/// horizon that has moved).
std::vector<Position> rows_of(const CacheDecision& decision, std::vector<Position> sources, const KvCache& cache) {
  for (const PositionRange& range : decision.visible)
    for (Position p = range.begin; p < range.end; ++p)
      if (!cache.holds(p)) sources.push_back(p);
  std::sort(sources.begin(), sources.end());
  std::vector<Position> rows;
  std::set_union(decision.rows.begin(), decision.rows.end(), sources.begin(), sources.end(), std::back_inserter(rows));
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

/// SuffixPolicy::kSparse: without the masks from `end` on that are not shown.
void thin_suffix(const Canvas& canvas, Position end, Position near, CacheDecision& decision) {
  const auto hidden = [&](Position p) { return p >= end && canvas.masked(p) && !shows_sparsely(p, end, near); };
  std::erase_if(decision.rows, hidden);
  std::vector<PositionRange> shown;
  for (const PositionRange& range : decision.visible)
    for (Position p = range.begin; p < range.end; ++p)
      if (!hidden(p)) append(shown, p);
  decision.visible = std::move(shown);
}

}  // namespace

PassPlanner::PassPlanner(const ModelDesc& desc, std::unique_ptr<CachePolicy> policy, const DenoiseOptions& options)
    : desc_(desc),
      policy_(std::move(policy)),
      suffix_(options.suffix),
      latency_(options.latency),
      score_all_masks_(options.compat && options.smooth.gain > 0) {}

std::optional<PassPlanner> PassPlanner::rehearsal() const {
  std::unique_ptr<CachePolicy> copy = policy_->clone();
  if (copy == nullptr) return std::nullopt;
  return PassPlanner(*this, std::move(copy));
}

Position PassPlanner::source_of(Position position) const { return std::max<Position>(0, position - desc_.logit_shift); }

Position PassPlanner::horizon(const Canvas& canvas, Position end, Position grown) const {
  if (!desc_.mask) return canvas.first_masked(0);  // unknown positions cannot be shown to the model
  if (desc_.causal_block > 0)                      // the rest of an attention block is visible to its rows
    return std::min(canvas.size(), static_cast<Position>(round_up(end, desc_.causal_block)));
  switch (suffix_.policy) {
    case SuffixPolicy::kFull:
    case SuffixPolicy::kSparse:  // plan() leaves out those between
      break;
    case SuffixPolicy::kGrow:
      return std::max(grown, end);
    case SuffixPolicy::kNear:
      return std::min(canvas.size(), end + suffix_.near);
    case SuffixPolicy::kNone:
      return end;
  }
  return canvas.size();
}

StepPlan PassPlanner::plan(const PlanState& state, DenoisePass& pass) const {
  const bool front_kept = state.spare_front && pass.wanted.front() == state.window.begin;
  const auto predicted = std::span(pass.wanted).subspan(front_kept ? 1 : 0);  // by this pass
  const Position first = state.spare_front ? state.window.begin : source_of(state.window.begin);
  std::vector<Position> sources;  // in a shifted model, positions 0 and 1 share one
  for (const Position p : predicted)
    if (sources.empty() || sources.back() != source_of(p)) sources.push_back(source_of(p));
  const Position decided_until = std::max(state.window.end, state.ahead);
  const Position end = horizon(state.canvas, decided_until, state.grown);
  CacheDecision decision = policy_->decide({state.canvas,
                                            state.cache,
                                            {first, state.window.end},
                                            end,
                                            desc_.causal_block,
                                            state.fresh,
                                            sources,
                                            latency_,
                                            state.predicted,
                                            state.ages});
  if (suffix_.policy == SuffixPolicy::kSparse) thin_suffix(state.canvas, decided_until, suffix_.near, decision);
  const std::vector<Position> rows = rows_of(decision, sources, state.cache);
  StepPlan plan;
  pass.fills = decision.fills;
  plan.causal_block = desc_.causal_block;
  plan.visible = decision.visible;
  for (const Position p : rows) plan.rows.push_back({p, state.canvas.token(p)});

  pass.score_of_wanted.clear();
  pass.also_scored.clear();
  if (front_kept) pass.score_of_wanted.push_back(DenoisePass::kKept);
  std::vector<Position> scored = also_scored(state, rows, predicted);
  const auto middle = scored.insert(scored.end(), predicted.begin(), predicted.end());
  std::inplace_merge(scored.begin(), middle, scored.end());
  ask_rows(scored, predicted, plan, pass);
  return plan;
}

void PassPlanner::ask_rows(std::span<const Position> positions, std::span<const Position> predicted, StepPlan& plan,
                           DenoisePass& pass) const {
  for (const Position p : positions) {
    const auto row = std::ranges::lower_bound(plan.rows, source_of(p), {}, &PlanRow::position);
    assert(row != plan.rows.end() && row->position == source_of(p));
    const auto index = static_cast<std::int32_t>(row - plan.rows.begin());
    if (plan.scored.empty() || plan.scored.back() != index) plan.scored.push_back(index);
    const auto score = static_cast<std::int32_t>(plan.scored.size()) - 1;
    if (std::binary_search(predicted.begin(), predicted.end(), p)) {
      pass.score_of_wanted.push_back(score);
    } else {
      pass.also_scored.emplace_back(p, score);
    }
  }
}

/// Masks that are not wanted but whose rows this pass forwards: dInfer's IterSmooth computes an expectation for them
/// too. Only under --compat, as each costs a row of the LM head.
std::vector<Position> PassPlanner::also_scored(const PlanState& state, std::span<const Position> rows,
                                               std::span<const Position> predicted) const {
  std::vector<Position> result;
  if (!score_all_masks_) return result;
  for (const Position row : rows) {
    const Position p = row + desc_.logit_shift;
    if (p < state.canvas.size() && state.canvas.masked(p) && !std::binary_search(predicted.begin(), predicted.end(), p))
      result.push_back(p);
  }
  return result;
}

}  // namespace dllm
