// A window that follows the commit frontier and is as wide as the machine makes worth while: the measured cost of steps
// decides, either by an allowance over the cost of one block's rows (dllm-reference D.3), or by the expected commits
// per millisecond, sum of a_j / ms(n), where a_j is how often position j behind the frontier was committed so far in
// this sequence. Everything inside competes; no block is a unit.
//
// The cost is that of the window's own rows, as under the dual and vicinity caches. A policy that forwards everything
// pays the same for every width; for it this window is no gain. Without a table the width is one block.
#include <algorithm>

#include "decode/acceptance.h"
#include "decode/window.h"

namespace dllm {
namespace {

// Assumed until there are looks: one of two positions at the frontier goes in a step, half as many 16 positions on.
constexpr double kFrontierAcceptance = 0.5;
constexpr double kHalfDistance = 16;
/// Below this the estimate of a commit rate is noise: a window of a few rows would pay a whole step for one token.
constexpr Position kLeastRows = 4;

class AdaptiveWindow : public Window {
 public:
  explicit AdaptiveWindow(const WindowConfig& config) : config_(config) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position frontier = canvas.first_masked(canvas.prompt_end());
    if (frontier == canvas.size()) return std::nullopt;
    const Position left = canvas.size() - frontier;
    const Position end = frontier + std::min(left, width(canvas, left));
    return WindowStep{{frontier, end}, end, block_at(config_, canvas, frontier).begin};
  }

  void observe(const WindowFeedback& feedback) override { acceptance_.observe(feedback.looks); }

 private:
  Position width(const Canvas& canvas, Position left) const {
    if (!config_.latency) return config_.block_length;
    const Position most = std::min(left, widest_window(config_));
    if (config_.objective == WindowObjective::kAllowance)
      return within_allowance(*config_.latency, canvas.size(), std::min(most, config_.block_length), most,
                              config_.allowance);
    const Position least = std::min(most, kLeastRows);
    double base = 0;
    for (Position j = 0; j < least; ++j) base += acceptance_.probability(j);
    return best_rate(*config_.latency, canvas.size(), least, most, base,
                     [&](Position more) { return acceptance_.probability(least + more); });
  }

  WindowConfig config_;
  Acceptance acceptance_{kFrontierAcceptance, kHalfDistance};
};

}  // namespace

std::unique_ptr<Window> make_adaptive_window(const WindowConfig& config) {
  return std::make_unique<AdaptiveWindow>(config);
}

}  // namespace dllm
