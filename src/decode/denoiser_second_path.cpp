// What the loop does for its second path: launches in prepare(), merges at the boundary between two steps.
#include <algorithm>

#include "base/try.h"
#include "decode/denoiser.h"

namespace dllm {

/// Starts a refresh beside the pass being prepared.
void Denoiser::launch_second() {
  if (!second_.idle()) return;
  const Decoder::Refresh refresh = method_.decoder->refresh(context());
  if (refresh.positions.empty()) return;
  second_.launch(second_pass(refresh), canvas_, cache_, counters_.steps);
  if (second_.delay() > 0) return;
  if (const auto merged = merge_second(merged_); !merged) failed_ = merged.error();
}

SecondPath::Launch Denoiser::second_pass(const Decoder::Refresh& refresh) const {
  SecondPath::Launch launch;
  StepPlan& plan = launch.step.plan;
  launch.wanted = refresh.positions;
  std::vector<Position> rows = refresh.positions;
  for (Position p : refresh.positions) rows.push_back(std::max<Position>(0, p - desc_.logit_shift));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (Position p : rows) {
    const bool hidden = refresh.left_out && std::binary_search(refresh.positions.begin(), refresh.positions.end(), p);
    plan.rows.push_back({p, hidden ? canvas_.mask() : canvas_.token(p)});
  }
  plan.causal_block = desc_.causal_block;
  const Position end = refresh.sees_window ? horizon() : window_.begin;
  for (Position p = 0; p < end; ++p) {
    if (!cache_.holds(p) && !std::binary_search(rows.begin(), rows.end(), p)) continue;
    if (plan.visible.empty() || plan.visible.back().end != p) plan.visible.push_back({p, p});
    plan.visible.back().end = p + 1;
  }
  for (Position p : refresh.positions) {
    const Position source = std::max<Position>(0, p - desc_.logit_shift);
    const auto row = static_cast<std::int32_t>(std::lower_bound(rows.begin(), rows.end(), source) - rows.begin());
    if (plan.scored.empty() || plan.scored.back() != row) plan.scored.push_back(row);
    launch.of_row.push_back(static_cast<std::int32_t>(plan.scored.size()) - 1);
    launch.step.request.queries.push_back({launch.of_row.back(), canvas_.token(p)});
  }
  launch.step.request.rng = options_.rng;
  launch.step.request.step = static_cast<std::uint32_t>(counters_.steps);
  launch.step.request.rules = rules();
  return launch;
}

/// What the second path has seen becomes part of the sequence.
Expected<void> Denoiser::merge_second(std::vector<Edit>& edits) {
  DLLM_TRY(const SecondPath::Result result, second_.collect(canvas_, cache_));
  const SequenceStep& made = result.launch.step;
  ++counters_.second_passes;
  counters_.rows_forwarded += static_cast<std::int64_t>(made.plan.rows.size());
  counters_.rows_scored += static_cast<std::int64_t>(made.plan.scored.size());
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < result.launch.wanted.size(); ++i) {
    if (!result.current[i]) continue;
    const RowScore& row = result.scores.rows[static_cast<std::size_t>(result.launch.of_row[i])];
    candidates.push_back({result.launch.wanted[i], row.token, row.confidence, row.log_odds, row.margin, row.entropy,
                          row.token >= 0 && !row.overruled, row.logit, std::span(result.scores.queried).subspan(i, 1)});
  }
  for (const Edit& edit : method_.decoder->merge(context(), candidates))
    if (canvas_.apply(edit)) edits.push_back(edit);
  return {};
}

}  // namespace dllm
