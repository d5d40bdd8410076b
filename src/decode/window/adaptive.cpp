// A window that starts at the commit frontier and is as wide as pays off on this machine. The measured cost of steps
// decides: either by an allowance over the cost of one block's rows (llada.cpp, arXiv 2606.13740), or by the expected
// commits per millisecond, sum of a_j / ms(n), where a_j is how often position j after the frontier was committed so
// far in this sequence. All positions inside compete; blocks do not matter.
//
// The cost is that of the window's own rows, as under the dual and vicinity caches. With a policy that forwards
// everything, each width costs the same, so this window gains nothing. Without a table the width is one block.
#include <algorithm>

#include "decode/registry.h"
#include "decode/window/acceptance.h"

namespace dllm {
namespace {

// The prior: half of the positions at the frontier are committed in a step, and half as many 16 positions further.
constexpr double kFrontierAcceptance = 0.5;
constexpr double kHalfDistance = 16;
/// Below this the estimated commit rate is noise: a window of a few rows would spend a whole step on one token.
constexpr Position kLeastRows = 4;

class AdaptiveWindow : public Window {
 public:
  AdaptiveWindow(const CostOptions& options, const MethodContext& context) : config_(options), context_(context) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position frontier = canvas.first_masked(canvas.prompt_end());
    if (frontier == canvas.size()) return std::nullopt;
    const Position left = canvas.size() - frontier;
    const Position end = frontier + std::min(left, width(canvas, left));
    return WindowStep{{frontier, end}, end, block_at(context_, canvas, frontier).begin};
  }

  void observe(const WindowFeedback& feedback) override { acceptance_.observe(feedback.looks); }

 private:
  Position width(const Canvas& canvas, Position left) const {
    if (!context_.latency) return context_.block_length;
    const Position most = std::min(left, widest_window(config_, context_));
    if (config_.objective == WindowObjective::kAllowance)
      return within_allowance(*context_.latency, canvas.size(), std::min(most, context_.block_length), most,
                              config_.allowance);
    const Position least = std::min(most, kLeastRows);
    double base = 0;
    for (Position j = 0; j < least; ++j) base += acceptance_.probability(j);
    return best_rate(*context_.latency, canvas.size(), least, most, base,
                     [&](Position more) { return acceptance_.probability(least + more); });
  }

  CostOptions config_;
  MethodContext context_;
  Acceptance acceptance_{kFrontierAcceptance, kHalfDistance};
};

}  // namespace

WindowEntry adaptive_window() {
  return declare_method<Window>("adaptive", "from the first mask, as wide as its cost allows", cost_rows(),
                                [](const CostOptions& options, const MethodContext& context) {
                                  return std::make_unique<AdaptiveWindow>(options, context);
                                });
}

}  // namespace dllm
