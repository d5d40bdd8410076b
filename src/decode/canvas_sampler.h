#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/types.h"
#include "model/model_desc.h"

namespace dllm {

/// What one pass says of one position of a canvas, at the pass's temperature.
struct CanvasLook {
  TokenId best = -1;   ///< arg-max
  TokenId drawn = -1;  ///< from the softmax
  double entropy = 0;  ///< nats
};

/// What a request may change of a canvas model's recommendations (CanvasDesc).
struct CanvasOptions {
  std::optional<std::int32_t> steps;  ///< passes over one canvas
  std::optional<double> entropy_bound;
};

/// DiffusionGemma's decisions on one canvas after another (transformers' EntropyBoundSampler and its stopping rule).
///
/// A pass predicts every position. Those of lowest entropy keep their draw, as long as the entropies of the ones before
/// sum to at most the bound (at least one does): the sum bounds the error of deciding them as if they were independent
/// (Ben-Hamu et al. 2025). All others show a new random token in the next pass, also those that were accepted before.
/// The canvas ends when its arg-max stays the same over `stability` passes while the mean entropy is below
/// `confidence`, or after `max_steps` passes, and its arg-max is the answer. The temperature of the pass with r passes
/// left, itself included, is t_min + (t_max - t_min) r / max_steps.
class CanvasSampler {
 public:
  explicit CanvasSampler(const CanvasDesc& config) : config_(config) {}

  /// A new canvas.
  void begin();
  /// Of the next pass.
  double temperature() const;
  /// Which positions keep their draw. Equal entropies: the lower position first.
  std::vector<bool> absorb(std::span<const CanvasLook> looks);
  /// The last pass was the canvas's last.
  bool finished() const { return finished_; }

 private:
  bool is_stable(const std::vector<TokenId>& best) const;

  CanvasDesc config_;
  std::int32_t passes_ = 0;
  bool finished_ = false;
  std::vector<std::vector<TokenId>> history_;  ///< arg-max of the last passes, at most `stability`
};

/// The random token that `position` shows in pass `pass` (over the whole answer, from 0) where nothing was accepted:
/// uniform over the vocabulary.
TokenId canvas_noise(const RngKey& key, std::uint32_t pass, Position position, std::int64_t vocab);

}  // namespace dllm
