// The steps of a pass that run on branches of the cache.
#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "backend/lead.h"
#include "decode/loop/denoiser.h"

namespace dllm {
namespace {

/// The pass `own` of the variant `canvas` on `branch`, which follows own's cache: what `own` writes, the branch writes
/// too, and so it does where it shows other tokens. So it sees nothing of the other canvas.
StepPlan variant_plan(const StepPlan& own, const Canvas& canvas, const KvCache& branch, PositionRange window,
                      std::span<const Position> sources) {
  std::vector<Position> rows(sources.begin(), sources.end());
  for (const PlanRow& row : own.rows) rows.push_back(row.position);
  for (Position p = window.begin; p < window.end; ++p)
    if (branch.holds(p) && branch.token_of(p) != canvas.token(p)) rows.push_back(p);
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  StepPlan plan;
  plan.visible = own.visible;
  plan.causal_block = own.causal_block;
  plan.region = own.region;
  for (const Position p : rows) plan.rows.push_back({p, canvas.token(p)});
  return plan;
}

}  // namespace

std::span<const SequenceStep> Denoiser::prepare() {
  if (!std::exchange(ready_, false)) prepare_pass();
  if (options_.branches.empty() || prepared_.empty() || pass_.checks) return prepared_;
  add_variants();
  if (variant_passes_.empty()) add_guesses();
  return prepared_;
}

Expected<DenoiseStep> Denoiser::absorb(std::span<const Scores> scores) {
  for (const SequenceStep& step : prepared_) counters_.add_rows(step.plan);
  if (pass_.checks) {
    ++counters_.nfe;
    return absorb_one(scores);
  }
  const std::size_t own = unconditional_ != nullptr ? 2 : 1;
  counters_.nfe += static_cast<std::int32_t>(own);
  if (variant_passes_.empty()) guesses_.keep(std::span(prepared_).subspan(own), scores.subspan(own));
  for (std::size_t i = 0; i < variant_passes_.size(); ++i)
    variants_.push_back(candidates_of(variant_passes_[i], scores[own + i], KeptFront(0)));
  Expected<DenoiseStep> step = absorb_one(scores.first(own));
  while (step && guesses_.waiting()) {
    prepare_pass();
    const Scores* const known = prepared_.empty() ? nullptr : guesses_.take(canvas_, prepared_[0]);
    ready_ = known == nullptr;
    if (ready_) break;
    Expected<DenoiseStep> next = absorb_one({known, 1});
    if (!next) return next;
    next->edits.insert(next->edits.begin(), step->edits.begin(), step->edits.end());
    next->forced = next->forced || step->forced;
    step = std::move(next);
  }
  guesses_.forget();
  return step;
}

/// Only where what a pass computes follows from the canvas and the step: not where masks remember their predictions,
/// drafts are shown, an answer grows or a structure guides.
/// Nor from the pass whose prediction of the window's first position is kept: what its successors keep, is not known.
void Denoiser::add_guesses() {
  if (prepared_.size() != 1 || pass_.idle || pass_.draining || without_mask_ || soft_masks_.on() || guide_.on() ||
      growth_.on() || cursor_.ahead() > cursor_.range().end || !drafts_.empty() || front_.keeps(pass_, cursor_.range()))
    return;
  const DecodeContext now = context();
  const std::vector<std::vector<Edit>> guesses = decoder_->guesses(now);
  if (guesses.empty()) return;
  const std::optional<PassPlanner> planner = planner_.rehearsal();
  if (!planner) return;
  Canvas canvas = canvas_;
  const PositionRange window = cursor_.range();
  std::int32_t ahead = 0;
  for (const std::vector<Edit>& edits : guesses) {
    if (!guesses_.room()) break;
    for (const Edit& edit : edits) {
      assert(edit.kind == EditKind::kCommit && window.contains(edit.position) && canvas.masked(edit.position));
      canvas.apply(edit);
    }
    ++ahead;
    DenoisePass pass;
    pass.wanted = decoder_->wanted(now.after(canvas, ahead));
    if (pass.wanted.empty()) break;  // another window follows
    KvCache& branch = guesses_.branch_after(prepared_.back());
    StepPlan plan = planner->plan({.canvas = canvas,
                                   .cache = branch,
                                   .window = window,
                                   .ahead = cursor_.ahead(),
                                   .spare_front = front_.spares_row(pass, window, false)},
                                  pass);
    lead_decided(desc_, branch, plan);
    ScoreRequest asked = request(canvas, pass, plan.scored.size(), counters_.steps + ahead);
    prepared_.push_back({&branch, std::move(plan), std::move(asked), std::nullopt});
    guesses_.expect(canvas);
  }
}

/// Not under guidance, whose second sequence has no branches, nor where masks carry more than their token.
void Denoiser::add_variants() {
  if (prepared_.size() != 1 || pass_.idle || pass_.draining || soft_masks_.on() || guide_.on()) return;
  const PositionRange window = cursor_.range();
  for (const std::vector<Edit>& edits : decoder_->variants(context())) {
    if (variant_passes_.size() == options_.branches.size()) break;
    Canvas canvas = canvas_;
    for (const Edit& edit : edits) {
      assert(window.contains(edit.position));
      canvas.apply(edit);
    }
    DenoisePass pass;
    std::vector<Position> sources;
    for (Position p = window.begin; p < window.end; ++p) {
      if (!canvas.masked(p)) continue;
      pass.wanted.push_back(p);
      sources.push_back(planner_.source_of(p));
    }
    pass.decided = pass.wanted.size();
    KvCache& branch = *options_.branches[variant_passes_.size()];
    branch.follow(cache_, prepared_[0].plan.rows);
    StepPlan plan = variant_plan(prepared_[0].plan, canvas, branch, window, sources);
    planner_.ask_rows(pass.wanted, pass.wanted, plan, pass);
    lead_decided(desc_, branch, plan);
    ScoreRequest asked = request(canvas, pass, plan.scored.size(), counters_.steps);
    prepared_.push_back({&branch, std::move(plan), std::move(asked), std::nullopt});
    variant_passes_.push_back(std::move(pass));
  }
}

}  // namespace dllm
