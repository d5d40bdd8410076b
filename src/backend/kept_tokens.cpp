#include "backend/kept_tokens.h"

#include <algorithm>
#include <cmath>

#include "base/to_size.h"

namespace dllm {

KeptTokens::KeptTokens(const Sampling& sampling, std::int64_t vocab)
    : sampling_(sampling),
      vocab_(vocab),
      limit_(sampling.top_k > 0 ? std::min<std::int64_t>(sampling.top_k, vocab) : vocab),
      inverse_temperature_(sampling.temperature > 0 ? 1 / sampling.temperature : 1),
      needs_mass_(sampling.top_p < 1) {
  if (sampling.min_p > 0) least_distance_ = std::log(sampling.min_p);
  filters_ = needs_mass() || is_limited() || std::isfinite(least_distance_);
}

bool KeptTokens::sound(const Sampling& s) {
  return std::isfinite(s.temperature) && s.temperature >= 0 && s.top_k >= 0 && s.top_p >= 0 && s.top_p <= 1 &&
         s.min_p >= 0 && s.min_p <= 1;
}

std::int64_t KeptTokens::count(std::span<const TopToken> counted, double mass, bool complete) const {
  const auto available = static_cast<std::int64_t>(counted.size());
  const std::int64_t limit = std::min(limit_, available);
  const double most = sampling_.top_p < 1 ? sampling_.top_p * mass : std::numeric_limits<double>::infinity();
  std::int64_t kept = 0;
  for (double before = 0; kept < limit && (kept == 0 || before <= most); ++kept) {
    const double d = logit_distance(counted[to_size(kept)].logit, counted.front().logit, inverse_temperature_);
    if (d < least_distance_) return kept;
    before += std::exp(d);
    // The list ended before a filter did.
    if (kept + 1 == available && before <= most && available < limit_ && !complete) return kNeedsMore;
  }
  return kept;
}

float KeptTokens::bound(float top, double mass) const {
  double least = least_distance_;
  // Tokens at or below this one have less than 1 - p together.
  if (sampling_.top_p < 1)
    least = std::max(least, std::log((1 - std::max(0.0, sampling_.top_p)) * mass / static_cast<double>(vocab_)));
  const double bound = static_cast<double>(top) + least / inverse_temperature_;
  // One part in a million lower, to allow for the rounding of this line; extra tokens are sorted out later.
  return std::min(top, static_cast<float>(bound - 1e-6 * std::abs(bound)));
}

bool has_filter(const Sampling& sampling) { return sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0; }

std::size_t count_kept(const Sampling& sampling, std::span<const double> weights) {
  double all = 0, before = 0;
  for (const double weight : weights) all += weight;
  const std::size_t most = sampling.top_k > 0 ? to_size(sampling.top_k) : weights.size();
  std::size_t kept = 0;
  for (; kept < std::min(most, weights.size()); ++kept) {
    if (kept > 0 && sampling.top_p < 1 && before > sampling.top_p * all) break;
    if (kept > 0 && weights[kept] < sampling.min_p * weights[0]) break;
    before += weights[kept];
  }
  return kept;
}

}  // namespace dllm
