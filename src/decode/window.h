#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/latency_table.h"
#include "decode/canvas.h"
#include "model/model_desc.h"

namespace dllm {

/// What a window says about the next step.
struct WindowStep {
  /// Positions that compete now. Positions in front of the prompt's end may be inside (absolute block grids); they are
  /// never masked.
  PositionRange range;
  /// Masks of [range.end, ahead) are predicted too, as drafts; not above range.end: none.
  Position ahead = 0;
  /// Changes where caches begin anew: once per block, also for windows that slide at every step.
  Position unit = 0;
};

/// What became of the predictions of a pass, for windows that learn how far it pays to look.
struct WindowFeedback {
  struct Look {
    Position offset = 0;
    bool accepted = false;
  };
  PositionRange range;       ///< the window of the pass
  std::vector<Look> looks;   ///< its predicted masks by offset from range.begin; accepted: committed in this pass
  std::vector<Look> drafts;  ///< drafts that became current, by offset from the end of the window they were made behind
};

/// Which positions are being decoded now (dInfer: iteration manager).
class Window {
 public:
  virtual ~Window() = default;
  /// The window of the next step; nullopt when nothing is left to decode. Depends on the canvas and on the feedback so
  /// far only: asked twice, it answers twice the same.
  virtual std::optional<WindowStep> next(const Canvas& canvas) = 0;
  /// Called once after every pass.
  virtual void observe(const WindowFeedback& feedback) { (void)feedback; }
};

/// How a window that may grow decides how far, from the measured cost of steps.
enum class WindowObjective {
  kAllowance,  ///< as far as a step stays within the allowance (llada.cpp, dllm-reference D.3)
  kRate,       ///< most expected commits per millisecond
};

struct WindowConfig {
  BlockOrigin origin = BlockOrigin::kPromptEnd;
  Position block_length = 32;
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine, borrowed; nullptr: unknown
  WindowObjective objective = WindowObjective::kAllowance;
  double allowance = 0.1;          ///< share by which a grown window's step may cost more
  Position max_rows = 0;           ///< widest window, drafts included; 0: four blocks
  std::int32_t trigger_masks = 4;  ///< lookahead: looks behind a block that has at most so many masks left
  bool slide_late = true;          ///< sliding: a committed position leaves one pass after its commit
};

/// Start of the grid of blocks.
Position block_origin(const WindowConfig& config, const Canvas& canvas);
/// The block that `position` lies in, clipped to the canvas.
PositionRange block_at(const WindowConfig& config, const Canvas& canvas, Position position);
/// The widest window that `config` allows.
Position widest_window(const WindowConfig& config);

}  // namespace dllm
