#include "decode/window/acceptance.h"

#include <algorithm>
#include <cmath>

namespace dllm {
namespace {

constexpr double kPriorLooks = 2;

}  // namespace

void Acceptance::observe(std::span<const WindowFeedback::Look> looks) {
  for (const WindowFeedback::Look& look : looks) {
    const auto i = static_cast<std::size_t>(std::max<Position>(0, look.offset));
    if (counts_.size() <= i) counts_.resize(i + 1);
    counts_[i].looks += 1;
    counts_[i].hits += look.accepted ? 1 : 0;
  }
}

double Acceptance::probability(Position offset) const {
  const auto i = static_cast<std::size_t>(offset);
  const Count count = i < counts_.size() ? counts_[i] : Count{};
  const double prior = at_zero_ * std::exp2(-static_cast<double>(offset) / half_);
  return (count.hits + kPriorLooks * prior) / (count.looks + kPriorLooks);
}

Position within_allowance(const LatencyTable& latency, Position context, Position least, Position most,
                          double allowance) {
  const double limit = latency.estimate_ms(least, context) * (1 + allowance);
  Position best = least;
  while (best < most && latency.estimate_ms(best + 1, context) <= limit) ++best;
  return best;
}

}  // namespace dllm
