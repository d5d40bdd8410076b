#pragma once

#include <span>
#include <vector>

#include "decode/decoder/decoder.h"

namespace dllm {

/// A penalty on repeating the previous token, against stutter: lambda is subtracted from the logit of the token that
/// the previous position shows, for every position of the window except the first (penalty_lambda of SGLang's
/// JointThreshold for LLaDA2.1). A mask before it counts as a token. Predictions without temperature only.
class PreviousTokenPenalty {
 public:
  explicit PreviousTokenPenalty(double lambda) : lambda_(lambda) {}

  bool on() const { return lambda_ > 0; }
  void configure(ScoreRequest& request) const;

  /// The logits that apply() needs at the wanted positions; none without a penalty.
  std::vector<TokenQuery> queries(const DecodeContext& context, std::span<const Position> wanted) const;

  /// The candidates under the penalized logits; empty without a penalty. `mask_competes`: the mask may be predicted;
  /// otherwise a candidate whose prediction is the mask becomes ineligible, as without a penalty.
  std::vector<Candidate> apply(const DecodeContext& context, std::span<const Candidate> candidates,
                               bool mask_competes) const;

 private:
  Candidate penalized(const Candidate& candidate, TokenId previous, TokenId mask, bool mask_competes) const;

  double lambda_;
};

}  // namespace dllm
