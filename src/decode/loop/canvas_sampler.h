#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/types.h"
#include "model/model_desc.h"

namespace dllm {

/// One pass's prediction for one position of a canvas, at the pass's temperature.
struct CanvasLook {
  TokenId best = -1;      ///< arg-max
  TokenId drawn = -1;     ///< from the softmax
  double entropy = 0;     ///< nats
  double confidence = 0;  ///< probability of `best`
};

/// A request's overrides of a canvas model's recommendations (CanvasDesc).
struct CanvasOptions {
  std::optional<std::int32_t> steps;  ///< passes over one canvas
  std::optional<double> entropy_bound;
  std::optional<double> threshold;  ///< see CanvasDesc
};

/// DiffusionGemma's decisions on one canvas after another (transformers' EntropyBoundSampler and its stopping rule).
///
/// A pass predicts every position. The positions of lowest entropy keep their draw, as long as the entropies of those
/// before them sum to at most the bound (at least one does); the sum bounds the error of deciding them as if they were
/// independent (Ben-Hamu et al. 2025). All others show a new random token in the next pass, including those accepted
/// earlier. The canvas ends when its arg-max has been the same for `stability` passes and the mean entropy is below
/// `confidence`, or after `max_steps` passes; its arg-max is the answer. With r passes left, including the current one,
/// the temperature is t_min + (t_max - t_min) r / max_steps.
///
/// With a threshold (mlx-vlm 0.7.10, "confidence-threshold"), once the probability of a position's arg-max reaches it,
/// the following passes are shown that token there; in each pass this holds for the surest position at least. The
/// canvas also ends when every position shows one. Its answer is the last pass's arg-max all the same.
class CanvasSampler {
 public:
  explicit CanvasSampler(const CanvasDesc& config) : config_(config) {}

  /// Starts a new canvas.
  void begin();
  /// Temperature of the next pass.
  double temperature() const;
  /// What the positions show in the next pass; -1: noise. Ties in entropy or confidence: the lower position first.
  std::vector<TokenId> absorb(std::span<const CanvasLook> looks);
  /// Whether the last pass ended the canvas.
  bool finished() const { return finished_; }

 private:
  bool is_stable(const std::vector<TokenId>& best) const;
  std::vector<TokenId> keep_low_entropies(std::span<const CanvasLook> looks) const;
  void keep_sure(std::span<const CanvasLook> looks);

  CanvasDesc config_;
  std::int32_t passes_ = 0;
  bool finished_ = false;
  std::vector<std::vector<TokenId>> history_;  ///< arg-max of the last passes, at most `stability`
  std::vector<TokenId> kept_;                  ///< with a threshold: what is shown, by position; -1: nothing yet
};

/// The random token that `position` shows in pass `pass` (counted over the whole answer, from 0) if it was not
/// accepted: uniform over the vocabulary.
TokenId canvas_noise(const RngKey& key, std::uint32_t pass, Position position, std::int64_t vocab);

}  // namespace dllm
