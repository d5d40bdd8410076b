#pragma once

#include <optional>
#include <span>
#include <vector>

#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "decode/window/suffix.h"

namespace dllm {

/// How much of the canvas the model sees while the length of the answer is found: the prompt and the positions before
/// end(). DAEDAL (Li et al. 2025, arXiv:2508.00819) in two stages.
///
/// 1. Passes that decide nothing. The share of the last `check` positions in which the model expects the answer to have
///    ended is: the sum of the confidences of the last at most `check` positions that predict a stop token, over
///    `check`. Below `threshold`, the end moves on by `step`, and there is another such pass.
/// 2. While the answer is decided, and that share is below `insert_until`: a mask of the window whose prediction is
/// less
///    probable than `insert_below`, the least probable one, becomes `insert` masks. What follows it moves.
///
/// An answer that fills what is visible without a stop token goes on with the next block (upstream ends there).
class AnswerGrowth {
 public:
  /// Does nothing for another policy than kGrow.
  AnswerGrowth(const Suffix& suffix, const Canvas& canvas, std::vector<TokenId> stop_ids);

  bool on() const { return config_.has_value(); }
  /// Whether the next pass is one of the first stage.
  bool measures() const { return measuring_; }
  Position end() const { return end_; }

  /// The positions after `from` whose predictions this needs: in the first stage all of the answer.
  std::vector<Position> wanted(const Canvas& canvas, Position from) const;
  /// Reads a pass of the first stage.
  void measure(const Canvas& canvas, std::span<const Candidate> answer);
  /// Reads a pass of the second stage, after the decoder's edits. `candidates`: all wanted positions, ascending; the
  /// first `decided` are the window's. The edits insert masks.
  std::vector<Edit> insert(const Canvas& canvas, std::span<const Candidate> candidates, std::size_t decided);
  /// The window ends at `end`, which is then visible.
  void reach(Position end);

 private:
  bool inserts(const Canvas& canvas) const;
  double ending(const Canvas& canvas, std::span<const Candidate> candidates) const;
  void grow(Position positions);

  std::optional<GrowthConfig> config_;
  std::vector<TokenId> stop_ids_;
  Position size_ = 0, end_ = 0;  ///< of the canvas; of what is visible
  bool measuring_ = false;
};

}  // namespace dllm
