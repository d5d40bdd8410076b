#include "decode/cache/kept_front.h"

#include <algorithm>

#include "base/to_size.h"

namespace dllm {

bool KeptFront::spares_row(const DenoisePass& pass, PositionRange window, bool fresh) const {
  if (!kept_ || fresh) return false;
  // Once the position is committed, its row is not needed.
  if (pass.wanted.front() != window.begin) return true;
  // A query needs more than was kept; and if nothing else is wanted, there would be nothing to run.
  const auto asks = [&window](const TokenQuery& query) { return query.position == window.begin; };
  return pass.wanted.size() > 1 && std::none_of(pass.queries.begin(), pass.queries.end(), asks);
}

bool KeptFront::keeps(const DenoisePass& pass, PositionRange window) const {
  return shift_ != 0 && window.begin >= shift_ && !pass.draining && pass.wanted.front() == window.begin &&
         !pass.front_kept();
}

void KeptFront::keep(const DenoisePass& pass, PositionRange window, const Scores& scores) {
  if (!keeps(pass, window)) return;
  const auto row = to_size(pass.score_of_wanted.front());
  const auto top = top_of(scores, row);
  kept_ = Prediction{scores.rows[row], {top.begin(), top.end()}};
}

std::vector<Candidate> candidates_of(const DenoisePass& pass, const Scores& scores, const KeptFront& front) {
  std::vector<Candidate> result;
  result.reserve(pass.wanted.size());
  std::size_t query = 0;
  for (std::size_t i = 0; i < pass.wanted.size(); ++i) {
    const std::size_t first = query;
    while (query < pass.queries.size() && pass.queries[query].position == pass.wanted[i]) ++query;
    const auto queried = std::span(scores.queried).subspan(first, query - first);
    const std::int32_t row = pass.score_of_wanted[i];
    result.push_back(row == DenoisePass::kKept ? candidate_of(pass.wanted[i], front.score(), queried, front.top(), {})
                                               : candidate_of(pass.wanted[i], scores, to_size(row), queried));
  }
  return result;
}

}  // namespace dllm
