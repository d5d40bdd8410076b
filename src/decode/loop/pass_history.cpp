#include "decode/loop/pass_history.h"

#include <cassert>

#include "base/to_size.h"

namespace dllm {

PassHistory::PassHistory(const Canvas& canvas) : ages_(to_size(canvas.size()), -1) {
  for (Position p = 0; p < canvas.size(); ++p) shown_.push_back({canvas.token(p), canvas.masked(p)});
}

void PassHistory::predict(std::span<const Candidate> candidates) {
  predicted_.assign(candidates.begin(), candidates.end());
  for (Candidate& candidate : predicted_) candidate.queried = {}, candidate.top = {};  // the scores do not live on
}

// Compares canvases rather than reading edits: insertions and deletions move tokens that no edit names.
void PassHistory::end_pass(const Canvas& canvas) {
  assert(to_size(canvas.size()) == shown_.size());
  for (Position p = 0; p < canvas.size(); ++p) {
    const auto i = to_size(p);
    const Shown now{canvas.token(p), canvas.masked(p)};
    if (now.masked)
      ages_[i] = -1;
    else if (now != shown_[i])
      ages_[i] = 0;
    else if (ages_[i] >= 0)
      ++ages_[i];
    shown_[i] = now;
  }
}

}  // namespace dllm
