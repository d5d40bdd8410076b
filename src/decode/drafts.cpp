#include "decode/drafts.h"

namespace dllm {

void Drafts::record(std::span<const Candidate> candidates, Position window_end) {
  for (const Candidate& candidate : candidates) {
    if (candidate.eligible && candidate.token >= 0) {
      drafts_[candidate.position] = {candidate.token, candidate.confidence, candidate.position - window_end};
    } else {
      drafts_.erase(candidate.position);
    }
  }
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
    const bool sure = same && candidate.confidence >= config_.threshold;
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
    const bool sure = draft.confidence >= config_.threshold && canvas.masked(it->first);
    looks.push_back({draft.offset, sure});
    if (sure) edits.push_back({it->first, draft.token, EditKind::kCommit, draft.confidence});
  }
  return edits;
}

}  // namespace dllm
