#pragma once

#include <map>
#include <optional>
#include <vector>

#include "decode/decoder/decoder.h"
#include "decode/window/window.h"

namespace dllm {

/// Predictions for masked positions after the window. This class never writes them to the canvas: accepted drafts are
/// returned as commits of the window that has become current.
class Drafts {
 public:
  /// `replays`: the decoder commits recorded drafts by itself (Decoder::replays()), and no other is accepted.
  Drafts(const DraftConfig& config, bool replays) : config_(config), replays_(replays) {}

  /// Replaces the drafts of these positions. `window_end`: of the pass that predicted them.
  void record(std::span<const Candidate> candidates, Position window_end);

  /// Masks in [window_end, ahead), the positions to draft.
  static std::vector<Position> positions(const Canvas& canvas, Position window_end, Position ahead);

  /// Shows drafts in a plan's masked rows after the window, if configured.
  void show_in(StepPlan& plan, const Canvas& canvas, Position window_end) const;

  /// The token to show at a position instead of the mask.
  std::optional<TokenId> shown(Position position) const;

  /// Commits of drafts whose window has become current, after the decoder's own edits: those that `candidates` predict
  /// again (recheck). Removes these drafts; fills `looks`.
  std::vector<Edit> recheck(const Canvas& canvas, std::span<const Candidate> candidates,
                            std::vector<WindowFeedback::Look>& looks);

  /// Commits in a range that became current (instant). Removes these drafts; fills `looks`.
  std::vector<Edit> accept(const Canvas& canvas, PositionRange range, std::vector<WindowFeedback::Look>& looks);

  /// Removes the drafts of a range whose positions have moved.
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
  bool replays_;
  std::map<Position, Draft> drafts_;
};

std::vector<OptionRow<DraftConfig>> draft_rows();

}  // namespace dllm
