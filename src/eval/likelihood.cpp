#include "eval/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/try.h"

namespace dllm {
namespace {

/// sum of log p over the mask, times L/k.
Expected<double> weighted(std::int32_t length, const std::vector<std::int32_t>& masked, const MaskedScorer& scorer) {
  DLLM_TRY(const std::vector<double> logs, scorer(masked));
  return std::accumulate(logs.begin(), logs.end(), 0.0) * static_cast<double>(length) /
         static_cast<double>(masked.size());
}

/// Mean over k of the mean over all masks of k positions.
Expected<LikelihoodEstimate> enumerate(std::int32_t length, const MaskedScorer& scorer) {
  if (length > kMaxEnumerated)
    return Error{ErrorCode::kUsage, fmt::format("a target of {} tokens cannot be enumerated", length), "",
                 fmt::format("at most {}; sample instead", kMaxEnumerated)};
  std::vector<double> sums(static_cast<std::size_t>(length) + 1, 0.0), counts(sums.size(), 0.0);
  LikelihoodEstimate estimate;
  for (std::uint32_t mask = 1; mask < 1u << length; ++mask) {
    std::vector<std::int32_t> masked;
    for (std::int32_t i = 0; i < length; ++i)
      if (mask >> i & 1u) masked.push_back(i);
    DLLM_TRY(const double value, weighted(length, masked, scorer));
    sums[masked.size()] += value;
    counts[masked.size()] += 1;
    ++estimate.samples;
  }
  for (std::size_t k = 1; k < sums.size(); ++k) estimate.log_likelihood += sums[k] / counts[k] / length;
  return estimate;
}

/// k of 0..length-1, uniformly, ascending: a partial Fisher-Yates shuffle.
std::vector<std::int32_t> draw_mask(std::int32_t length, std::int32_t k, const RngKey& rng, std::uint32_t sample) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(length));
  std::iota(all.begin(), all.end(), 0);
  for (std::int32_t i = 0; i < k; ++i) {
    const double u = uniform01(rng, RngPurpose::kOrder, sample, static_cast<std::uint32_t>(i));
    const auto j = i + static_cast<std::int32_t>(u * (length - i));
    std::swap(all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(j)]);
  }
  all.resize(static_cast<std::size_t>(k));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

Expected<LikelihoodEstimate> estimate_likelihood(std::int32_t length, const MaskedScorer& scorer,
                                                 const LikelihoodOptions& options) {
  if (length < 1) return Error{ErrorCode::kUsage, "the target has no tokens", "", ""};
  if (length == 1 || options.samples == 0) return enumerate(length, scorer);
  const std::int32_t group = std::clamp(options.group, 1, options.samples);
  const std::int32_t groups = (options.samples + group - 1) / group;
  std::vector<double> means;
  for (std::int32_t g = 0; g < groups; ++g) {
    const auto first_sample = static_cast<std::uint32_t>(g * group);
    const double u = uniform01(options.rng, RngPurpose::kTransfer, first_sample, 0);
    const double start = 1 + std::floor(u * length);
    double sum = 0;
    for (std::int32_t j = 0; j < group; ++j) {
      const auto at = static_cast<std::int64_t>(std::llround(start + static_cast<double>(j) * length / group));
      const auto k = static_cast<std::int32_t>((at - 1) % length) + 1;
      DLLM_TRY(
          const double value,
          weighted(length, draw_mask(length, k, options.rng, first_sample + static_cast<std::uint32_t>(j)), scorer));
      sum += value;
    }
    means.push_back(sum / group);
  }
  LikelihoodEstimate estimate;
  estimate.samples = groups * group;
  estimate.log_likelihood = std::accumulate(means.begin(), means.end(), 0.0) / groups;
  if (groups > 1) {
    double squares = 0;
    for (const double mean : means) squares += (mean - estimate.log_likelihood) * (mean - estimate.log_likelihood);
    estimate.standard_error = std::sqrt(squares / (groups - 1) / groups);
  }
  return estimate;
}

}  // namespace dllm
