// Blocks with drafts (llada.cpp's multi-block speculative decoding, arXiv 2606.13740): once a block has few masks left,
// the positions after it are predicted in the same pass, as many as the measured cost of steps allows. They are drafts:
// nothing after the block is committed, so the prefix never contains one. When their block becomes current, the loop
// decides about them (decode/drafts.h).
//
// How far: llada.cpp's greedy rule extends the drafts while the step stays within the allowance. The other objective
// weighs the commits of the block (their average so far) and the acceptance of drafts by offset against the
// milliseconds. Without a table the step keeps the size of a block, the paper's "constant size while sliding": drafts
// take the rows that the block no longer needs.
#include <algorithm>

#include "decode/registry.h"
#include "decode/window/acceptance.h"
#include "decode/window/drafts.h"

namespace dllm {
namespace {

// The prior until drafts have been checked.
constexpr double kDraftAcceptance = 0.3;
constexpr double kDraftHalfDistance = 8;

struct LookaheadOptions : CostOptions, DraftConfig {
  std::int32_t lookahead_masks = 4;
};

OptionRows<LookaheadOptions> lookahead_rows() {
  using O = LookaheadOptions;
  return join_rows<O>(OptionRows<O>{option("lookahead_masks", &O::lookahead_masks, 0, kMostPositions, "masks",
                                           "draft when the block has at most this many left; 0: never")},
                      rows_only<O>(join_rows<O>(draft_rows(), cost_rows()), "with --lookahead-masks above 0",
                                   [](const O& o) { return o.lookahead_masks > 0; }));
}

class LookaheadWindow : public Window {
 public:
  LookaheadWindow(const LookaheadOptions& options, const MethodContext& context)
      : config_(options), context_(context) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position masked = canvas.first_masked(canvas.prompt_end());
    if (masked == canvas.size()) return std::nullopt;
    const PositionRange block = block_at(context_, canvas, masked);
    WindowStep step{block, block.end, block.begin};
    if (canvas.masked_count(block) <= config_.lookahead_masks) step.ahead = block.end + reach(canvas, block, masked);
    return step;
  }

  void observe(const WindowFeedback& feedback) override {
    acceptance_.observe(feedback.drafts);
    for (const WindowFeedback::Look& look : feedback.looks) commits_ += look.accepted ? 1 : 0;
    passes_ += 1;
  }

  DraftConfig drafts() const override { return config_; }

 private:
  /// Rows after the block.
  Position reach(const Canvas& canvas, PositionRange block, Position masked) const {
    const Position left = canvas.size() - block.end;
    if (!context_.latency) return std::min(left, masked - block.begin);
    const Position most = std::min(widest_window(config_, context_), block.size() + left);
    if (config_.objective == WindowObjective::kAllowance)
      return within_allowance(*context_.latency, canvas.size(), block.size(), most, config_.allowance) - block.size();
    const double commits = std::min<double>(canvas.masked_count(block), (commits_ + 1) / (passes_ + 1));
    return best_rate(*context_.latency, canvas.size(), block.size(), most, commits,
                     [&](Position offset) { return acceptance_.probability(offset); }) -
           block.size();
  }

  LookaheadOptions config_;
  MethodContext context_;
  Acceptance acceptance_{kDraftAcceptance, kDraftHalfDistance};
  double commits_ = 0, passes_ = 0;
};

}  // namespace

WindowEntry lookahead_window() {
  return declare_method<Window>("lookahead", "a block with drafts after it", lookahead_rows(),
                                [](const LookaheadOptions& options, const MethodContext& context) {
                                  return std::make_unique<LookaheadWindow>(options, context);
                                })
      .depending_on(lookahead_rows(), [](const LookaheadOptions& options) {
        return MethodTraits{.instant_drafts = options.acceptance == DraftAcceptance::kInstant};
      });
}

}  // namespace dllm
