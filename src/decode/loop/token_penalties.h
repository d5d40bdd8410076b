#pragma once

#include <vector>

#include "backend/logit_adjustments.h"
#include "base/types.h"
#include "decode/canvas.h"
#include "decode/loop/denoise_pass.h"

namespace dllm {

/// Penalties on tokens that prompt or answer contain, and biases of single tokens.
struct PenaltyConfig {
  double repetition = 1;                             ///< of tokens in prompt or answer; 1: off
  double presence = 0;                               ///< of tokens in the answer, in logits; 0: off
  double frequency = 0;                              ///< per occurrence in the answer, in logits; 0: off
  std::vector<LogitAdjustments::Token> biased = {};  ///< ascending; only `token` and `bias` are read
  std::vector<TokenId> uncounted = {};               ///< these occurrences are no repetition: tokens that end an answer

  bool penalizes() const { return repetition != 1 || presence != 0 || frequency != 0; }
  bool on() const { return penalizes() || !biased.empty(); }
};

/// The adjustments of a pass. Masks are no tokens: what a pass predicts only weighs on later passes, so that a token
/// may still be repeated within one.
LogitAdjustments adjustments(const PenaltyConfig& config, const Canvas& canvas, const DenoisePass& pass,
                             std::size_t scored);

}  // namespace dllm
