// Blocks with drafts (llada.cpp's multi-block speculative decoding, dllm-reference D.2, D.3): once a block has few
// masks left, the positions behind it are predicted in the same pass, as many as the measured cost of steps allows.
// They are drafts: nothing behind the block is committed, so the prefix never holds one. What becomes of them when
// their block is current is the loop's business (decode/drafts.h).
//
// How far: llada.cpp's greedy rule goes on while the step stays within the allowance. The other objective weighs the
// commits of the block (their average so far) and the acceptance of drafts by offset against the milliseconds. Without
// a table the step keeps the size of a block, D.2's "constant size while sliding": the rows the block no longer needs.
#include <algorithm>

#include "decode/acceptance.h"
#include "decode/window.h"

namespace dllm {
namespace {

// Assumed until drafts were looked at again.
constexpr double kDraftAcceptance = 0.3;
constexpr double kHalfDistance = 8;

class LookaheadWindow : public Window {
 public:
  explicit LookaheadWindow(const WindowConfig& config) : config_(config) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position masked = canvas.first_masked(canvas.prompt_end());
    if (masked == canvas.size()) return std::nullopt;
    const PositionRange block = block_at(config_, canvas, masked);
    WindowStep step{block, block.end, block.begin};
    if (canvas.masked_count(block) <= config_.trigger_masks) step.ahead = block.end + reach(canvas, block, masked);
    return step;
  }

  void observe(const WindowFeedback& feedback) override {
    drafts_.observe(feedback.drafts);
    for (const WindowFeedback::Look& look : feedback.looks) commits_ += look.accepted ? 1 : 0;
    passes_ += 1;
  }

 private:
  /// Rows behind the block.
  Position reach(const Canvas& canvas, PositionRange block, Position masked) const {
    const Position left = canvas.size() - block.end;
    if (!config_.latency) return std::min(left, masked - block.begin);
    const Position most = std::min(widest_window(config_), block.size() + left);
    if (config_.objective == WindowObjective::kAllowance)
      return within_allowance(*config_.latency, canvas.size(), block.size(), most, config_.allowance) - block.size();
    const double commits = std::min<double>(canvas.masked_count(block), (commits_ + 1) / (passes_ + 1));
    return best_rate(*config_.latency, canvas.size(), block.size(), most, commits,
                     [&](Position offset) { return drafts_.probability(offset); }) -
           block.size();
  }

  WindowConfig config_;
  Acceptance drafts_{kDraftAcceptance, kHalfDistance};
  double commits_ = 0, passes_ = 0;
};

}  // namespace

std::unique_ptr<Window> make_lookahead_window(const WindowConfig& config) {
  return std::make_unique<LookaheadWindow>(config);
}

}  // namespace dllm
