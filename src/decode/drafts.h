#pragma once

#include <map>
#include <optional>
#include <vector>

#include "decode/decoder.h"
#include "decode/window.h"

namespace dllm {

/// What happens to drafts when their block becomes current (dllm-reference D.7 A8).
enum class DraftAcceptance {
  kRecheck,  ///< committed in the first pass if that predicts the same token at or above the draft threshold again
  kInstant,  ///< committed without another look if the last draft was at or above the draft threshold
};

struct DraftConfig {
  DraftAcceptance acceptance = DraftAcceptance::kRecheck;
  double threshold = 0.7;
  bool show = false;  ///< drafts at or above the threshold are shown to the model instead of masks (A5)
};

/// Predictions for masked positions behind the window. They never enter the canvas from here: what is accepted comes
/// back as commits of the then current window.
class Drafts {
 public:
  explicit Drafts(const DraftConfig& config) : config_(config) {}

  /// Replaces what was drafted for these positions. `window_end`: of the pass that predicted them.
  void record(std::span<const Candidate> candidates, Position window_end);

  /// The token to show at a position instead of the mask.
  std::optional<TokenId> shown(Position position) const;

  /// Commits of drafts whose window has become current, after the decoder's own edits: of those that `candidates`
  /// predict again (recheck). Forgets them; fills `looks`.
  std::vector<Edit> recheck(const Canvas& canvas, std::span<const Candidate> candidates,
                            std::vector<WindowFeedback::Look>& looks);

  /// Commits in a range that became current (instant). Forgets them; fills `looks`.
  std::vector<Edit> accept(const Canvas& canvas, PositionRange range, std::vector<WindowFeedback::Look>& looks);

  /// Drafts of a range whose positions have moved.
  void forget(PositionRange range) { drafts_.erase(drafts_.lower_bound(range.begin), drafts_.lower_bound(range.end)); }

  DraftAcceptance acceptance() const { return config_.acceptance; }
  bool empty() const { return drafts_.empty(); }

 private:
  struct Draft {
    TokenId token = -1;
    double confidence = 0;
    Position offset = 0;
  };
  DraftConfig config_;
  std::map<Position, Draft> drafts_;
};

}  // namespace dllm
