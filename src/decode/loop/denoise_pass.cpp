#include "decode/loop/denoise_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/to_size.h"

namespace dllm {

std::int32_t DenoisePass::score_of(Position position) const {
  const auto at = std::lower_bound(wanted.begin(), wanted.end(), position);
  assert(at != wanted.end() && *at == position);
  return score_of_wanted[to_size(at - wanted.begin())];
}

std::span<const TopToken> top_of(const Scores& scores, std::size_t row) {
  if (scores.rows.empty()) return {};
  const std::size_t count = scores.top.size() / scores.rows.size();
  return std::span(scores.top).subspan(row * count, count);
}

Candidate candidate_of(Position position, const RowScore& row, std::span<const float> queried,
                       std::span<const TopToken> top, std::span<const float> logits) {
  return {position,
          row.token,
          row.confidence,
          row.log_odds,
          row.margin,
          row.entropy,
          row.token >= 0 && !row.overruled,
          row.logit,
          queried,
          top,
          logits};
}

Candidate candidate_of(Position position, const Scores& scores, std::size_t row, std::span<const float> queried) {
  const std::size_t vocabulary = scores.logits.size() / scores.rows.size();
  return candidate_of(position, scores.rows[row], queried, top_of(scores, row),
                      std::span(scores.logits).subspan(row * vocabulary, vocabulary));
}

bool force_progress(std::span<const Candidate> candidates, Canvas& canvas, DenoiseStep& step,
                    DenoiseCounters& counters) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates)
    if (canvas.masked(candidate.position) && candidate.token >= 0 && candidate.token != canvas.mask() &&
        (best == nullptr || candidate.log_odds > best->log_odds))
      best = &candidate;
  if (best == nullptr) return false;
  step.edits.push_back(commit(*best));
  canvas.apply(step.edits.back());
  step.forced = true;
  ++counters.forced;
  return true;
}

Error not_a_number(Position position, std::int64_t pass) {
  return {ErrorCode::kInvalidFile, fmt::format("the model's prediction for position {} is not a number", position),
          fmt::format("pass {}", pass), "the weights are damaged, or were quantized from damaged ones"};
}

}  // namespace dllm
