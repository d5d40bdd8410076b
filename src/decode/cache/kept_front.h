#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "decode/loop/denoise_pass.h"

namespace dllm {

/// Shifted models predict the window's first position from the settled row before the window. With this option
/// (KeepingOptions::keep_front) that row is forwarded in the window's first pass only, and its prediction is kept.
class KeptFront {
 public:
  /// `shift`: the model's; 0: nothing is kept.
  explicit KeptFront(std::int32_t shift) : shift_(shift) {}

  bool there() const { return kept_.has_value(); }
  void forget() { kept_.reset(); }

  /// Whether the pass can do without the row. `fresh`: caches start anew, so the row is predicted again.
  bool spares_row(const DenoisePass& pass, PositionRange window, bool fresh) const;

  /// Whether keep() will keep a prediction of the pass, which has been planned.
  bool keeps(const DenoisePass& pass, PositionRange window) const;

  /// Keeps the prediction of the window's first position from a pass that made it.
  void keep(const DenoisePass& pass, PositionRange window, const Scores& scores);

  /// The kept prediction. Precondition: there().
  const RowScore& score() const { return kept_->score; }
  std::span<const TopToken> top() const { return kept_->top; }

 private:
  struct Prediction {
    RowScore score;
    std::vector<TopToken> top;
  };
  std::int32_t shift_;
  std::optional<Prediction> kept_;
};

/// The predictions of a pass at its wanted positions, in their order. Borrows both.
std::vector<Candidate> candidates_of(const DenoisePass& pass, const Scores& scores, const KeptFront& front);

}  // namespace dllm
