#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "dllm/error.h"

namespace dllm {

/// A masked model's bound on the log-likelihood of a target.
struct LikelihoodEstimate {
  double log_likelihood = 0;  ///< nats, of the whole target
  double standard_error = 0;  ///< of the mean over groups; 0 if exact or if there is one group
  std::int32_t samples = 0;   ///< masks scored
};

struct LikelihoodOptions {
  std::int32_t samples = 128;  ///< rounded up to whole groups; 0: exact, by enumeration
  std::int32_t group = 16;     ///< samples whose mask counts are spread evenly over 1..length
  RngKey rng = {};             ///< seed and number of the request: the same masks in every run
};

/// Targets up to this length can be enumerated (2^12 - 1 passes).
constexpr std::int32_t kMaxEnumerated = 12;

/// The masks of an estimate. They are known before scoring, so any number of them can share a forward pass.
///
/// LLaDA's estimator (Nie et al., arXiv 2502.09992, eq. 6): of L target tokens, k are masked uniformly at random, k
/// itself uniform in 1..L, and the log-probabilities of the masked ones are weighted L/k. Its expectation is the mean
/// of the chain rule over all orders, a lower bound that is tight if the model's conditionals belong to one
/// distribution. Targets of one token need one pass. Within a group, k takes evenly spaced values in 1..L from a random
/// start (the stratification of LLaDA's evaluation code).
class LikelihoodPlan {
 public:
  /// Errors: kUsage for an empty target, or one too long to be enumerated.
  static Expected<LikelihoodPlan> sampled(std::int32_t length, const LikelihoodOptions& options);
  /// All tokens at once, for autoregressive models.
  static LikelihoodPlan whole(std::int32_t length) { return {Kind::kWhole, length, {.samples = 1, .group = 1}}; }

  std::int32_t samples() const { return options_.samples; }
  /// Ascending indices into the target; sample < samples().
  std::vector<std::int32_t> mask(std::int32_t sample) const;
  /// A sample's estimate, from the log-probabilities of its masked tokens.
  double value(std::span<const double> logs) const;
  /// The estimate from all samples' values, in order.
  LikelihoodEstimate combine(std::span<const double> values) const;

 private:
  enum class Kind { kWhole, kEnumerated, kSampled };
  LikelihoodPlan(Kind kind, std::int32_t length, const LikelihoodOptions& options)
      : kind_(kind), length_(length), options_(options) {}

  Kind kind_;
  std::int32_t length_;
  LikelihoodOptions options_;  ///< `samples` rounded up to whole groups
};

}  // namespace dllm
