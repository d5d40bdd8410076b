#include "decode/window/draft_window.h"

#include <algorithm>
#include <vector>

namespace dllm {
namespace {

// Assumed of a draft until some were verified; a quarter as good 16 positions further on.
constexpr double kFirstAcceptance = 0.8;
constexpr double kModeHalfDistance = 8;
// Where drafts do not pay, one is made all the same after so many plain steps: texts change.
constexpr int kPlainSteps = 16;

}  // namespace

DraftWindow::DraftWindow(const DraftOptions& options, const LatencyTable* latency, const DraftedDesc& drafted)
    : options_(options),
      latency_(options.draft_objective == DraftObjective::kRate ? latency : nullptr),
      drafted_(drafted),
      acceptance_(kFirstAcceptance, kModeHalfDistance) {
  if (drafted.block > 0) {
    options_.draft_max = std::min(options_.draft_max, drafted.block);
    options_.draft_min = std::min(options_.draft_min, options_.draft_max);
  }
  width_ = options_.draft_min;
}

Position DraftWindow::next(Position left, Position context) const {
  const Position most = std::min(left, options_.draft_max);
  if (latency_ == nullptr) return std::min(most, width_);
  return best_width(most, context);
}

/// A drafter always runs its whole block.
double DraftWindow::round_ms(Position rows, Position context) const {
  const double verification = latency_->estimate_ms(rows, context);
  if (drafted_.block == 0) return 2 * verification;
  return verification + drafted_.cost * latency_->estimate_ms(drafted_.block, context);
}

/// A round of n rows makes two passes and brings 1 + sum over j < n - 1 of (p_0 ... p_j) tokens, p_j being the chance
/// that draft j is right if those in front of it are.
Position DraftWindow::best_width(Position most, Position context) const {
  if (most < 2) return most;
  double reached = 1;
  const auto gain = [&](Position offset) { return reached *= acceptance_.probability(offset); };
  const Position least = std::min(most, options_.draft_min);
  double tokens = 1;
  for (Position j = 0; j + 1 < least; ++j) tokens += gain(j);
  double best = tokens / round_ms(least, context);
  Position width = least;
  for (Position n = least + 1; n <= most; ++n) {
    tokens += gain(n - 2);
    const double rate = tokens / round_ms(n, context);
    if (rate > best) best = rate, width = n;
  }
  const bool plain = 1 / latency_->estimate_ms(1, context) > best;
  return plain && since_draft_ < kPlainSteps ? 1 : width;
}

void DraftWindow::observe(Position rows, Position accepted, bool ended) {
  since_draft_ = rows == 1 ? since_draft_ + 1 : 0;
  if (rows == 1 || ended) return;
  std::vector<WindowFeedback::Look> looks;  // up to the first draft that was wrong
  for (Position j = 0; j + 1 < rows && j < accepted; ++j) looks.push_back({j, j + 1 < accepted});
  acceptance_.observe(looks);
  if (accepted == rows)
    width_ = std::min(options_.draft_max, 2 * width_);
  else if (accepted <= std::max<Position>(1, rows / 2))
    width_ = std::max(options_.draft_min, width_ / 2);
}

}  // namespace dllm
