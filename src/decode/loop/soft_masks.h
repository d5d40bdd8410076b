#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/scores.h"
#include "backend/step_plan.h"
#include "decode/canvas.h"

namespace dllm {

struct DenoisePass;

/// dInfer's IterSmooth (arXiv 2510.08666).
struct SmoothConfig {
  double gain = 0;         ///< largest weight of the expected embedding; 0: off (dInfer: 0.3)
  double first = 0.15;     ///< weight of the first pass
  double per_pass = 0.02;  ///< growth of the weight and fall of the threshold, per pass
  std::int32_t top = 64;   ///< number of likeliest tokens in the expectation; 0: every token, for checks
};

/// Masks with memory: the input of a masked row is the mask's embedding plus w_n times the expected embedding of the
/// last prediction there, sum over v of p(v) E[v]. The sum is cut to the likeliest tokens and not rescaled, so that a
/// flat distribution adds little. w_n = min(first + per_pass n, gain) after n passes, and thresholds begin at 1 and
/// fall by per_pass: the first passes commit only what is certain.
class SoftMasks {
 public:
  explicit SoftMasks(const SmoothConfig& config) : config_(config) {}

  bool on() const { return config_.gain > 0; }
  void configure(ScoreRequest& request) const;
  /// max(1 - per_pass n, 0), the lowest threshold of the next pass.
  double least_threshold() const;
  /// w_n of the last pass.
  double weight() const;

  /// Keeps a pass's expectations for the masks that remain; removes the others.
  void learn(const DenoisePass& pass, const Canvas& canvas, const Scores& scores);

  /// Adds the mixtures to a plan's rows that show the mask.
  void mix_into(StepPlan& plan, const Canvas& canvas) const;

  /// Keeps a pass's prediction for a masked position. `top`: its list, best first; or `logits`, all of them.
  void record(Position position, const RowScore& row, std::span<const TopToken> top, std::span<const float> logits);
  void forget(Position position) { mixtures_.erase(position); }
  /// After the positions of a pass were recorded.
  void end_pass() { ++passes_; }

  /// The vector added to the mask's embedding; empty: none.
  std::span<const MixedToken> mixture(Position position) const;

 private:
  SmoothConfig config_;
  std::int32_t passes_ = 0;
  std::map<Position, std::vector<MixedToken>> mixtures_;
};

}  // namespace dllm
