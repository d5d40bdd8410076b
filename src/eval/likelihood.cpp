#include "eval/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace dllm {
namespace {

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

/// The mean, with the standard error of the mean over groups.
LikelihoodEstimate mean_of_groups(std::span<const double> values, std::int32_t group) {
  std::vector<double> means;
  for (std::size_t first = 0; first < values.size(); first += static_cast<std::size_t>(group)) {
    const auto part = values.subspan(first, static_cast<std::size_t>(group));
    means.push_back(std::accumulate(part.begin(), part.end(), 0.0) / group);
  }
  const auto groups = static_cast<double>(means.size());
  LikelihoodEstimate estimate;
  estimate.log_likelihood = std::accumulate(means.begin(), means.end(), 0.0) / groups;
  if (means.size() > 1) {
    double squares = 0;
    for (const double mean : means) squares += (mean - estimate.log_likelihood) * (mean - estimate.log_likelihood);
    estimate.standard_error = std::sqrt(squares / (groups - 1) / groups);
  }
  return estimate;
}

/// Masks are numbered by their bits: the mask of sample i is i + 1.
std::size_t masked_of(std::size_t sample) { return static_cast<std::size_t>(std::popcount(sample + 1)); }

}  // namespace

Expected<LikelihoodPlan> LikelihoodPlan::sampled(std::int32_t length, const LikelihoodOptions& options) {
  if (length < 1) return Error{ErrorCode::kUsage, "the target has no tokens", "", ""};
  LikelihoodOptions whole = options;
  if (length > 1 && options.samples > 0) {
    whole.group = std::clamp(options.group, 1, options.samples);
    whole.samples = (options.samples + whole.group - 1) / whole.group * whole.group;
    return LikelihoodPlan(Kind::kSampled, length, whole);
  }
  if (length > kMaxEnumerated)
    return Error{ErrorCode::kUsage, fmt::format("a target of {} tokens cannot be enumerated", length), "",
                 fmt::format("at most {}; sample instead", kMaxEnumerated)};
  whole.samples = (1 << length) - 1;
  return LikelihoodPlan(Kind::kEnumerated, length, whole);
}

std::vector<std::int32_t> LikelihoodPlan::mask(std::int32_t sample) const {
  if (kind_ == Kind::kSampled) {
    const std::int32_t first = sample / options_.group * options_.group, j = sample - first;
    const double u = uniform01(options_.rng, RngPurpose::kTransfer, static_cast<std::uint32_t>(first), 0);
    const double start = 1 + std::floor(u * length_);
    const auto at = static_cast<std::int64_t>(std::llround(start + static_cast<double>(j) * length_ / options_.group));
    const auto k = static_cast<std::int32_t>((at - 1) % length_) + 1;
    return draw_mask(length_, k, options_.rng, static_cast<std::uint32_t>(sample));
  }
  std::vector<std::int32_t> masked;
  for (std::int32_t i = 0; i < length_; ++i)
    if (kind_ == Kind::kWhole || ((sample + 1) >> i & 1) != 0) masked.push_back(i);
  return masked;
}

double LikelihoodPlan::value(std::span<const double> logs) const {
  if (logs.empty()) return 0;
  return std::accumulate(logs.begin(), logs.end(), 0.0) * static_cast<double>(length_) /
         static_cast<double>(logs.size());
}

LikelihoodEstimate LikelihoodPlan::combine(std::span<const double> values) const {
  LikelihoodEstimate estimate;
  if (kind_ == Kind::kEnumerated) {
    // The mean over k of the mean over all masks of k positions.
    std::vector<double> sums(static_cast<std::size_t>(length_) + 1, 0.0), counts(sums.size(), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[masked_of(i)] += values[i];
      counts[masked_of(i)] += 1;
    }
    for (std::size_t k = 1; k < sums.size(); ++k) estimate.log_likelihood += sums[k] / counts[k] / length_;
  } else {
    estimate = mean_of_groups(values, options_.group);
  }
  estimate.samples = options_.samples;
  return estimate;
}

}  // namespace dllm
