#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/try.h"
#include "dllm/error.h"
#include "eval/likelihood.h"

namespace dllm::test {

/// Log-probabilities (nats) of the target's tokens at `masked`, ascending indices into the target: all of these show
/// the mask, and the rest of the target is visible. One forward pass.
using MaskedScorer = std::function<Expected<std::vector<double>>(const std::vector<std::int32_t>& masked)>;

/// A plan's masks scored one by one. Errors: those of the plan and of `scorer`.
inline Expected<LikelihoodEstimate> estimate_likelihood(std::int32_t length, const MaskedScorer& scorer,
                                                        const LikelihoodOptions& options = {}) {
  DLLM_TRY(const LikelihoodPlan plan, LikelihoodPlan::sampled(length, options));
  std::vector<double> values;
  for (std::int32_t sample = 0; sample < plan.samples(); ++sample) {
    DLLM_TRY(const std::vector<double> logs, scorer(plan.mask(sample)));
    values.push_back(plan.value(logs));
  }
  return plan.combine(values);
}

}  // namespace dllm::test
