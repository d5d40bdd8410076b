#include "npu_compiler/analytic/routing.h"

#include <algorithm>
#include <cmath>

#include "base/integers.h"

namespace dllm::npu {
namespace {

/// Expected ceil(X / block) of X ~ Binomial(n, p), 0 < p < 1. Sums the distribution within 10 standard deviations of
/// its mean, from its largest term outwards, because (1 - p)^n underflows for large n.
double expected_blocks(std::int64_t n, double p, std::int64_t block) {
  const auto trials = static_cast<double>(n);
  const double mean = trials * p, reach = 10 * std::sqrt(mean * (1 - p)) + 10, odds = p / (1 - p);
  const auto first = static_cast<std::int64_t>(std::max(0.0, std::floor(mean - reach)));
  const auto last = static_cast<std::int64_t>(std::min(trials, std::ceil(mean + reach)));
  const auto middle = static_cast<std::int64_t>(mean);
  double weight = 0, blocks = 0;
  const auto count = [&](std::int64_t k, double term) {
    weight += term;
    blocks += term * static_cast<double>(ceil_div(k, block));
  };
  double term = 1;
  for (std::int64_t k = middle; k <= last; ++k) {
    count(k, term);
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1) * odds;
  }
  term = 1;
  for (std::int64_t k = middle; k > first; --k) {
    term *= static_cast<double>(k) / static_cast<double>(n - k + 1) / odds;
    count(k - 1, term);
  }
  return blocks / weight;
}

}  // namespace

/// Experts among which rows choose.
static std::int64_t lanes_of(std::int64_t experts, std::int64_t used, const ChoiceAssumption& assumption) {
  const std::int64_t limit = assumption.lanes;
  return limit == 0 ? experts : std::clamp(limit, used, experts);
}

double experts_touched(std::int64_t rows, std::int64_t experts, std::int64_t used, const ChoiceAssumption& assumption) {
  const std::int64_t lanes = lanes_of(experts, used, assumption);
  if (assumption.balanced || used == lanes) return static_cast<double>(std::min(lanes, rows * used));
  const double share = static_cast<double>(used) / static_cast<double>(lanes);
  return static_cast<double>(lanes) * -std::expm1(static_cast<double>(rows) * std::log1p(-share));
}

ExpertLoad expert_load(std::int64_t rows, std::int64_t experts, std::int64_t used, std::int64_t block,
                       const ChoiceAssumption& assumption) {
  const std::int64_t lanes = lanes_of(experts, used, assumption), pairs = rows * used;
  const double touched = experts_touched(rows, experts, used, assumption);
  if (assumption.balanced || used == lanes) {
    const std::int64_t each = pairs / lanes, more = pairs % lanes;
    return {touched, static_cast<double>(more * ceil_div(each + 1, block) + (lanes - more) * ceil_div(each, block))};
  }
  const double share = static_cast<double>(used) / static_cast<double>(lanes);
  return {touched, static_cast<double>(lanes) * expected_blocks(rows, share, block)};
}

}  // namespace dllm::npu
