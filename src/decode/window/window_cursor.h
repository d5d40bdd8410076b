#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "decode/window/window.h"

namespace dllm {

/// The position of the loop: the window of the step, how long it has been current, and whether caches start anew.
class WindowCursor {
 public:
  explicit WindowCursor(std::unique_ptr<Window> window) : window_(std::move(window)) {}

  bool begun() const { return range_.begin >= 0; }
  const PositionRange& range() const { return range_; }
  /// End of the positions drafted after the window; the window's end: none.
  Position ahead() const { return ahead_; }
  std::int32_t step() const { return step_; }                  ///< steps made in this window
  Position masks_at_start() const { return masks_at_start_; }  ///< masks of the window at its first step
  bool unit_changed() const { return unit_changed_; }          ///< since the last plan (WindowStep::unit)

  /// Moves on to the window of the next step, which may be the same one; false: nothing is left to decode.
  bool advance(const Canvas& canvas) {
    const auto next = window_->next(canvas);
    if (!next) return false;
    if (next->range != range_) {
      range_ = next->range;
      step_ = 0;
      masks_at_start_ = canvas.masked_count(range_);
    }
    // Kept until the next plan: a schedule may skip the unit's first steps.
    unit_changed_ = unit_changed_ || next->unit != unit_;
    unit_ = next->unit;
    ahead_ = next->ahead;
    return true;
  }
  /// The first pass of a window may cut it.
  void cut(const Canvas& canvas, std::span<const Candidate> predictions) {
    if (step_ > 0) return;
    range_.end = window_->cut(range_, predictions);
    ahead_ = std::max(range_.end, ahead_);
    masks_at_start_ = canvas.masked_count(range_);
  }
  void drop_drafts() { ahead_ = range_.end; }
  void end_step() { ++step_; }
  void begin_unit() { unit_changed_ = true; }
  void end_plan() { unit_changed_ = false; }

  /// What advance() would move to.
  std::optional<PositionRange> next(const Canvas& canvas) const {
    const auto next = window_->next(canvas);
    return next ? std::optional(next->range) : std::nullopt;
  }
  void observe(const WindowFeedback& feedback) { window_->observe(feedback); }
  DraftConfig drafts() const { return window_->drafts(); }

 private:
  std::unique_ptr<Window> window_;
  PositionRange range_{-1, -1};
  Position ahead_ = -1;
  Position unit_ = -1;
  bool unit_changed_ = false;
  std::int32_t step_ = 0;
  Position masks_at_start_ = 0;
};

}  // namespace dllm
