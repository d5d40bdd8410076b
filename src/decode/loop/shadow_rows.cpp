#include "decode/loop/shadow_rows.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/to_size.h"

namespace dllm {
namespace {

std::vector<PositionRange> without(const std::vector<PositionRange>& ranges, Position position) {
  std::vector<PositionRange> result;
  for (const PositionRange& range : ranges) {
    if (!range.contains(position)) {
      result.push_back(range);
      continue;
    }
    if (range.begin < position) result.push_back({range.begin, position});
    if (position + 1 < range.end) result.push_back({position + 1, range.end});
  }
  return result;
}

}  // namespace

void add_shadows(const Canvas& canvas, Position shift, DenoisePass& pass, StepPlan& plan) {
  pass.score_of_shadow.clear();
  for (const Position p : pass.shadowed) {
    assert(!canvas.masked(p));
    const Position source = std::max<Position>(0, p - shift);
    const TokenId token = source == p ? canvas.mask() : canvas.token(source);
    pass.score_of_shadow.push_back(static_cast<std::int32_t>(plan.scored.size()));
    plan.scored.push_back(static_cast<std::int32_t>(plan.row_count()));
    plan.shadows.push_back({{source, token}, without(plan.visible, p)});
  }
}

void query_shadows(const Canvas& canvas, const DenoisePass& pass, ScoreRequest& request) {
  for (std::size_t i = 0; i < pass.shadowed.size(); ++i)
    request.queries.push_back({pass.score_of_shadow[i], canvas.token(pass.shadowed[i])});
}

std::vector<Candidate> shadows_of(const DenoisePass& pass, const Scores& scores) {
  std::vector<Candidate> result;
  for (std::size_t i = 0; i < pass.shadowed.size(); ++i)
    result.push_back(candidate_of(pass.shadowed[i], scores, to_size(pass.score_of_shadow[i]),
                                  std::span(scores.queried).subspan(pass.queries.size() + i, 1)));
  return result;
}

}  // namespace dllm
