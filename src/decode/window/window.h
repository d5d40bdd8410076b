#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/latency_table.h"
#include "decode/canvas.h"
#include "model/model_desc.h"

namespace dllm {

template <class T>
struct OptionRow;
struct Candidate;
struct MethodContext;

/// What happens to drafts when their block becomes current.
enum class DraftAcceptance {
  kRecheck,  ///< committed in the first pass if it predicts the same token again, at or above the draft threshold
  kInstant,  ///< committed without a check if the last draft was at or above the draft threshold
};

struct DraftConfig {
  DraftAcceptance acceptance = DraftAcceptance::kRecheck;
  double threshold = 0.7;
  bool show = false;  ///< drafts at or above the threshold are shown to the model instead of masks
};

/// A window's decision for the next step.
struct WindowStep {
  /// Positions that compete now. Positions inside the prompt may be included (absolute block grids); they are never
  /// masked.
  PositionRange range;
  /// Masks of [range.end, ahead) are predicted too, as drafts; none if ahead is not above range.end.
  Position ahead = 0;
  /// Changes when caches must start anew: once per block, also for windows that slide in every step.
  Position unit = 0;
};

/// The outcome of a pass's predictions, for windows that learn how far looking ahead pays off.
struct WindowFeedback {
  struct Look {
    Position offset = 0;
    bool accepted = false;
  };
  PositionRange range;       ///< the window of the pass
  std::vector<Look> looks;   ///< its predicted masks by offset from range.begin; accepted: committed in this pass
  std::vector<Look> drafts;  ///< drafts that became current, by offset from the end of the window they were made after
};

/// Which positions are being decoded now (dInfer: iteration manager).
class Window {
 public:
  virtual ~Window() = default;
  /// The window of the next step; nullopt when nothing is left to decode. A pure function of the canvas and the
  /// feedback so far.
  virtual std::optional<WindowStep> next(const Canvas& canvas) = 0;
  /// Called with the predictions of a window's first pass, before any is decided: where the window ends, not after the
  /// range that next() gave. From then on next() gives that range.
  virtual Position cut(PositionRange range, std::span<const Candidate> predictions) {
    (void)predictions;
    return range.end;
  }
  /// Called once after every pass.
  virtual void observe(const WindowFeedback& feedback) { (void)feedback; }
  /// How drafts become commits; called for windows that draft (WindowStep::ahead).
  virtual DraftConfig drafts() const { return {}; }
};

/// How a growing window chooses its width from the measured cost of steps.
enum class WindowObjective {
  kAllowance,  ///< as far as a step stays within the allowance (llada.cpp, arXiv 2606.13740)
  kRate,       ///< most expected commits per millisecond
};

/// Options of windows that use the cost of steps.
struct CostOptions {
  std::string latency = "nominal";  ///< "nominal", a table's file, or "auto": measured here. The engine reads it.
  WindowObjective objective = WindowObjective::kAllowance;
  double allowance = 0.1;              ///< share by which a step of a grown window may cost more
  std::optional<Position> max_window;  ///< widest window, drafts included; absent: four blocks
};
std::vector<OptionRow<CostOptions>> cost_rows();

/// Start of the grid of blocks.
Position block_origin(const MethodContext& context, const Canvas& canvas);
/// The block that contains `position`, clipped to the canvas.
PositionRange block_at(const MethodContext& context, const Canvas& canvas, Position position);
/// The widest window that the options allow; at least one block.
Position widest_window(const CostOptions& options, const MethodContext& context);

}  // namespace dllm
