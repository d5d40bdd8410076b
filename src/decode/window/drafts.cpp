#include "decode/window/drafts.h"

#include "decode/option_row.h"

namespace dllm {

OptionRows<DraftConfig> draft_rows() {
  using O = DraftConfig;
  return {
      option("draft_acceptance", &O::acceptance,
             {{"recheck", DraftAcceptance::kRecheck}, {"instant", DraftAcceptance::kInstant}},
             "accept a draft when its block's first pass confirms it, or at once"),
      option("draft_threshold", &O::threshold, 0, 2, "", "confidence from which a draft is accepted"),
      option("show_drafts", &O::show, "the model reads drafts above the threshold instead of masks"),
  };
}

void Drafts::record(std::span<const Candidate> candidates, Position window_end) {
  for (const Candidate& candidate : candidates) {
    if (candidate.eligible && candidate.token >= 0) {
      drafts_[candidate.position] = {candidate.token, candidate.confidence, candidate.position - window_end};
    } else {
      drafts_.erase(candidate.position);
    }
  }
}

std::vector<Position> Drafts::positions(const Canvas& canvas, Position window_end, Position ahead) {
  std::vector<Position> result;
  for (Position p = window_end; p < ahead; ++p)
    if (canvas.masked(p)) result.push_back(p);
  return result;
}

void Drafts::show_in(StepPlan& plan, const Canvas& canvas, Position window_end) const {
  if (!config_.show || drafts_.empty()) return;
  for (PlanRow& row : plan.rows)
    if (row.position >= window_end && canvas.masked(row.position)) row.token = shown(row.position).value_or(row.token);
}

std::optional<TokenId> Drafts::shown(Position position) const {
  if (!config_.show) return std::nullopt;
  const auto draft = drafts_.find(position);
  if (draft == drafts_.end() || draft->second.confidence < config_.threshold) return std::nullopt;
  return draft->second.token;
}

std::vector<Edit> Drafts::recheck(const Canvas& canvas, std::span<const Candidate> candidates,
                                  std::vector<WindowFeedback::Look>& looks) {
  std::vector<Edit> edits;
  for (const Candidate& candidate : candidates) {
    const auto found = drafts_.find(candidate.position);
    if (found == drafts_.end()) continue;
    const bool same = candidate.eligible && candidate.token == found->second.token;
    const bool sure = !replays_ && same && candidate.confidence >= config_.threshold;
    // Positions that the decoder has just committed count as accepted, with whatever token they got.
    looks.push_back({found->second.offset, sure || !canvas.masked(candidate.position)});
    if (sure && canvas.masked(candidate.position)) edits.push_back(commit(candidate));
    drafts_.erase(found);
  }
  return edits;
}

std::vector<Edit> Drafts::accept(const Canvas& canvas, PositionRange range, std::vector<WindowFeedback::Look>& looks) {
  std::vector<Edit> edits;
  for (auto it = drafts_.lower_bound(range.begin); it != drafts_.end() && it->first < range.end;
       it = drafts_.erase(it)) {
    const Draft& draft = it->second;
    const bool sure = !replays_ && draft.confidence >= config_.threshold && canvas.masked(it->first);
    looks.push_back({draft.offset, replays_ ? !canvas.masked(it->first) : sure});
    if (sure) edits.push_back({it->first, draft.token, EditKind::kCommit, draft.confidence});
  }
  return edits;
}

}  // namespace dllm
