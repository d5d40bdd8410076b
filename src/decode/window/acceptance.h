#pragma once

#include <span>
#include <vector>

#include "decode/window/window.h"

namespace dllm {

/// How likely a prediction at an offset is accepted, learnt from the passes of one sequence (the curve of llada.cpp's
/// figure 8). It starts from a prior that halves every `half` positions: (hits + w prior) / (looks + w).
class Acceptance {
 public:
  Acceptance(double at_zero, double half) : at_zero_(at_zero), half_(half) {}

  void observe(std::span<const WindowFeedback::Look> looks);
  /// In (0, 1).
  double probability(Position offset) const;

 private:
  struct Count {
    double looks = 0, hits = 0;
  };
  double at_zero_, half_;
  std::vector<Count> counts_;  ///< by offset
};

/// The number of rows in [least, most] with the largest expected commits per millisecond, (base + sum over
/// least <= j < n of gain(j - least)) / ms(n); the smallest of equals.
template <class Gain>
Position best_rate(const LatencyTable& latency, Position context, Position least, Position most, double base,
                   Gain gain) {
  Position best = least;
  double commits = base, best_rate = base / latency.estimate_ms(least, context);
  for (Position n = least + 1; n <= most; ++n) {
    commits += gain(n - 1 - least);
    const double rate = commits / latency.estimate_ms(n, context);
    if (rate > best_rate) best = n, best_rate = rate;
  }
  return best;
}

/// The largest number of rows in [least, most] whose step costs at most (1 + allowance) times that of `least`.
Position within_allowance(const LatencyTable& latency, Position context, Position least, Position most,
                          double allowance);

}  // namespace dllm
