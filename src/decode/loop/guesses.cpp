#include "decode/loop/guesses.h"

#include <algorithm>
#include <cassert>

namespace dllm {
namespace {

/// Whether two canvases of one sequence show the same.
bool show_the_same(const Canvas& one, const Canvas& other) {
  if (one.size() != other.size()) return false;
  for (Position p = 0; p < one.size(); ++p)
    if (one.masked(p) != other.masked(p) || one.token(p) != other.token(p)) return false;
  return true;
}

/// Whether two passes of one canvas compute the same. What they ask of each row follows from the canvas, the rows that
/// are scored, and the step.
bool compute_the_same(const SequenceStep& one, const SequenceStep& other) {
  const StepPlan &a = one.plan, &b = other.plan;
  return a.rows == b.rows && a.visible == b.visible && a.causal_block == b.causal_block && a.scored == b.scored &&
         a.lead == b.lead && a.region == b.region && a.mixtures.empty() && b.mixtures.empty() && a.shadows.empty() &&
         b.shadows.empty() && one.request.step == other.request.step && one.request.rules == other.request.rules &&
         one.request.queries.empty() && other.request.queries.empty();
}

}  // namespace

KvCache& Guesses::branch_after(const SequenceStep& before) {
  KvCache& branch = *branches_[expected_.size()];
  branch.follow(*before.cache, before.plan.rows);
  return branch;
}

void Guesses::keep(std::span<const SequenceStep> steps, std::span<const Scores> scores) {
  assert(steps.size() == expected_.size() && scores.size() == steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) passes_.push_back({steps[i], scores[i]});
}

const Scores* Guesses::take(const Canvas& canvas, const SequenceStep& step) {
  const Pass& pass = passes_[next_];
  if (!show_the_same(canvas, expected_[next_]) || !compute_the_same(step, pass.step)) return nullptr;
  step.cache->adopt(*pass.step.cache);
  ++next_;
  return &pass.scores;
}

void Guesses::forget() {
  expected_.clear();
  passes_.clear();
  next_ = 0;
}

}  // namespace dllm
