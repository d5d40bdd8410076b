#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace dllm {

/// How a drafter's tokens follow from its logits and hidden states: row by row as the graph scored them, or left to
/// right, each with a term by the token in front (DSpark's Markov head; DFlash2's selector of candidates), in the
/// target's tokens.
class DraftChoice {
 public:
  /// Rows as they were scored, if the drafter has no parts of its own. The drafter's weights are copied.
  explicit DraftChoice(const Model& drafter);

  /// What choose() needs of a step that predicts a block.
  void prepare(ScoreRequest& request) const;
  /// `draft`: as the loop asked; `scores`: of a step after prepare(). Rows get their tokens and, with a confidence
  /// head, their confidences; what choose() alone needs is removed.
  void choose(const SequenceStep& draft, Scores& scores) const;

 private:
  bool plain() const { return tokens_.empty() && markov_rank_ == 0 && selector_rank_ == 0; }
  void choose_row(const ScoreRequest& request, RowScore& row, TokenId previous, std::span<const float> hidden,
                  std::span<float> logits) const;
  void add_markov(TokenId previous, std::span<float> logits) const;
  std::vector<std::size_t> candidates(TokenId previous, std::span<const float> hidden, std::span<float> logits) const;
  TokenId target_of(std::size_t row) const { return tokens_.empty() ? static_cast<TokenId>(row) : tokens_[row]; }

  std::int64_t width_ = 0, markov_rank_ = 0, selector_rank_ = 0, selector_top_ = 0;
  std::vector<TokenId> tokens_;                 ///< the target's, by row of the head; empty: the same
  std::vector<float> first_, second_;           ///< Markov: by token in front; by row of the head
  std::vector<float> predecessor_, successor_;  ///< of the selector
  std::vector<float> hidden_;                   ///< of the selector, its ranks side by side
  std::vector<float> confidence_;               ///< hidden state, then the Markov row; then the bias
};

}  // namespace dllm
