#pragma once

#include <vector>

#include "base/types.h"

namespace dllm {

/// One of the likeliest tokens of a row.
struct TopToken {
  TokenId token = 0;
  float logit = 0;
};

/// The reduced prediction of one scored row. Ties in logits: the lower token id wins.
struct RowScore {
  Position position = 0;  ///< of the row (for shifted models the prediction is for position + 1)
  TokenId token = -1;     ///< arg-max or draw; -1 only if every token is forbidden or every logit is NaN
  float logit = 0;        ///< of `token`; relates queried and listed logits to the probabilities
  double confidence = 0;  ///< probability of `token`, float64 from float32 logits
  /// ln(c / (1 - c)), computed from the sum without `token`: preserves the order of confidences that round to 1.
  double log_odds = 0;
  double margin = 0;   ///< largest minus second largest probability
  double entropy = 0;  ///< -sum p ln p in nats
  /// A token that must not be chosen (TokenRule::choose = false) would have won the arg-max or the draw. LLaDA can
  /// predict the mask itself: such a row is a poor candidate, even though its best other token is known.
  bool overruled = false;
};

/// Scores of one sequence, in the order of StepPlan::scored.
struct Scores {
  std::vector<RowScore> rows;
  std::vector<TopToken> top;   ///< rows x ScoreRequest::top_tokens, best first
  std::vector<float> queried;  ///< one logit per ScoreRequest::queries
  std::vector<float> logits;   ///< rows x vocabulary if requested
  std::vector<float> hidden;   ///< hidden states if requested, one row of the plan (or scored row) after the other
};

}  // namespace dllm
