// Passes that read a decoder's drafts, and rows that it wants read as mixtures.
#include <algorithm>
#include <cassert>
#include <utility>

#include "decode/loop/check_steps.h"
#include "decode/loop/denoiser.h"

namespace dllm {

/// A pass that reads what the decoder has drafted, in place of an ordinary one.
bool Denoiser::send_check() {
  const std::vector<Edit> drafts = decoder_->drafts(context());
  if (drafts.empty()) return false;
  assert(cursor_.range().contains(drafts.back().position) && canvas_.masked(drafts.front().position));
  pass_.checks = true;
  cursor_.drop_drafts();
  for (CheckStep& one : check_steps(desc_, canvas_, drafts, cursor_.range().end, cache_, options_.branches)) {
    DenoisePass& pass = variant_passes_.emplace_back();
    pass.wanted = std::move(one.predicted);
    pass.decided = pass.wanted.size();
    for (std::size_t i = 0; i < pass.wanted.size(); ++i) {
      pass.score_of_wanted.push_back(static_cast<std::int32_t>(i));
      const auto draft = static_cast<std::size_t>(pass.wanted[i] - drafts.front().position);
      if (draft < drafts.size()) pass.queries.push_back({pass.wanted[i], drafts[draft].token});
    }
    ScoreRequest asked = request(canvas_, pass, one.plan.scored.size(), counters_.steps);
    prepared_.push_back({one.cache, std::move(one.plan), std::move(asked), std::nullopt});
  }
  return true;
}

/// Rows of committed positions that the decoder wants read as mixtures.
void Denoiser::add_soft_tokens(StepPlan& plan) {
  for (SoftToken& one : decoder_->soft_tokens(context())) {
    assert(!canvas_.masked(one.position) && cursor_.range().contains(one.position));
    const auto row = std::ranges::lower_bound(plan.rows, one.position, {}, &PlanRow::position);
    if (row == plan.rows.end() || row->position != one.position) continue;
    plan.mixtures.push_back({static_cast<std::int32_t>(row - plan.rows.begin()), std::move(one.tokens), true});
  }
}

/// A pass that read the decoder's drafts.
Expected<DenoiseStep> Denoiser::absorb_check(std::span<const Scores> scores) {
  DenoiseStep step;
  step.window = cursor_.range();
  std::vector<Candidate> predicted;
  for (std::size_t i = 0; i < variant_passes_.size(); ++i) {
    if (variant_passes_[i].wanted.empty()) continue;
    const std::vector<Candidate> some = candidates_of(variant_passes_[i], scores[i], KeptFront(0));
    predicted.insert(predicted.end(), some.begin(), some.end());
  }
  apply(decoder_->checked(context(), predicted), step);
  counters_.rounds += 1;
  counters_.round_tokens += static_cast<std::int32_t>(step.edits.size());
  if (step.edits.empty() && !force_progress(predicted, canvas_, step, counters_)) return not_a_number();
  history_.predict({});
  cursor_.end_step();
  ++counters_.steps;
  if (const auto stop = stop_rule_.first(canvas_, settled())) stop_ = stop;
  return step;
}

}  // namespace dllm
