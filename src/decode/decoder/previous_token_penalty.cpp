#include "decode/decoder/previous_token_penalty.h"

#include <algorithm>
#include <cmath>

namespace dllm {
namespace {

/// The penalized token, the mask, and one that is neither: the new arg-max is one of them.
constexpr std::int32_t kTop = 3;

bool concerns(const DecodeContext& context, Position p) { return p > context.window.begin; }

}  // namespace

void PreviousTokenPenalty::configure(ScoreRequest& request) const {
  if (on()) request.top_tokens = std::max(request.top_tokens, kTop);
}

std::vector<TokenQuery> PreviousTokenPenalty::queries(const DecodeContext& context,
                                                      std::span<const Position> wanted) const {
  std::vector<TokenQuery> result;
  if (!on()) return result;
  for (Position p : wanted)
    if (concerns(context, p)) result.push_back({p, context.canvas.token(p - 1)});
  return result;
}

std::vector<Candidate> PreviousTokenPenalty::apply(const DecodeContext& context, std::span<const Candidate> candidates,
                                                   bool mask_competes) const {
  std::vector<Candidate> result;
  if (!on()) return result;
  for (const Candidate& candidate : candidates)
    result.push_back(
        concerns(context, candidate.position) && candidate.confidence > 0
            ? penalized(candidate, context.canvas.token(candidate.position - 1), context.canvas.mask(), mask_competes)
            : candidate);
  return result;
}

Candidate PreviousTokenPenalty::penalized(const Candidate& candidate, TokenId previous, TokenId mask,
                                          bool mask_competes) const {
  // Logits relative to the prediction's. The others sum to e^-log_odds; the penalized token's share is replaced.
  const double logit = candidate.logit, before = static_cast<double>(candidate.queried[0]) - logit;
  const double after = before - lambda_;
  const auto relative = [&](const TopToken& top) {
    return top.token == previous ? after : static_cast<double>(top.logit) - logit;
  };
  TopToken best{-1, 0};
  double lead = 0, mask_lead = -HUGE_VAL;
  const auto consider = [&](const TopToken& top) {
    if (top.token == mask) mask_lead = relative(top);
    if (top.token == mask && !mask_competes) return;
    if (best.token < 0 || relative(top) > lead || (relative(top) == lead && top.token < best.token))
      best = top, lead = relative(top);
  };
  for (const TopToken& top : candidate.top) consider(top);
  if (best.token < 0) return candidate;
  double others = std::exp(-candidate.log_odds);  // of all tokens except the candidate's
  if (candidate.token == previous) {
    others += std::exp(after);
  } else {
    others += std::exp(after) - std::exp(before) + 1;
  }
  others = std::max(others - std::exp(lead), 0.0);  // of all tokens except the new one
  Candidate result = candidate;
  result.token = best.token;
  result.logit = static_cast<float>(logit + lead);
  result.confidence = 1 / (1 + others * std::exp(-lead));
  result.log_odds = lead - std::log(others);
  result.eligible = mask_competes || !(mask_lead > lead);
  return result;
}

}  // namespace dllm
