#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "backend/scores.h"
#include "dllm/options.h"

namespace dllm {

/// The order of candidates: larger logit, then lower id. It is total, so a set of the best does not depend on the order
/// in which tokens were examined.
inline bool better(const TopToken& a, const TopToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// beta (a - b) in float64. Equal logits, infinite ones included, have distance 0.
inline double logit_distance(float a, float b, double beta) {
  return a == b ? 0 : (static_cast<double>(a) - static_cast<double>(b)) * beta;
}

/// Which counted tokens of a row the filters of sampling keep: a prefix of them in the order of better(). top_p comes
/// first, over the whole distribution at temperature T, then top_k, as in Dream, then min_p at temperature T, as in
/// Nguyen et al. 2024, arXiv:2407.01082. At T = 0 the filters use T = 1.
///
/// `mass` below is the sum of e^d over all counted tokens, d = (z - max) / T; it is read only if needs_mass().
class KeptTokens {
 public:
  KeptTokens(const Sampling& sampling, std::int64_t vocab);
  /// Whether every member is in its range, as resolved options are: for requests from another process.
  static bool sound(const Sampling& sampling);

  bool all() const { return !filters_; }
  bool needs_mass() const { return needs_mass_; }
  std::int64_t limit() const { return limit_; }  ///< most tokens kept
  bool is_limited() const { return limit_ < vocab_; }
  double inverse_temperature() const { return inverse_temperature_; }

  /// Number of kept tokens among `counted`, which are all counted tokens or, unless `complete`, the best of them.
  /// kNeedsMore if they may extend beyond these.
  std::int64_t count(std::span<const TopToken> counted, double mass, bool complete) const;
  static constexpr std::int64_t kNeedsMore = -1;

  /// A counted token below this logit is not kept. `top`: the largest counted logit.
  float bound(float top, double mass) const;

 private:
  Sampling sampling_;
  std::int64_t vocab_, limit_;
  double inverse_temperature_;
  double least_distance_ = -std::numeric_limits<double>::infinity();  ///< of a kept token: ln min_p
  bool needs_mass_, filters_;
};

/// The same of weights that are known, e^d times any factor, in descending order: how many are kept.
std::size_t count_kept(const Sampling& sampling, std::span<const double> weights);
/// Whether count_kept() may keep fewer than all.
bool has_filter(const Sampling& sampling);

}  // namespace dllm
