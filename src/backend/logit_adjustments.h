#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace dllm {

/// Changes of logits before they are reduced. A token t with the logit z, which the prompt contains or which the answer
/// contains n times, not counting the scored position itself, gets
///   z' = (z > 0 ? z / repetition : z * repetition) - presence [n > 0] - frequency n + bias(t);
/// other tokens only get their bias. Repetition: Keskar et al. 2019 (arXiv:1909.05858, section 4.1), with the sign rule
/// of transformers; presence, frequency and bias: OpenAI's API.
struct LogitAdjustments {
  struct Token {
    TokenId token = 0;
    bool in_prompt = false;
    std::int32_t in_answer = 0;
    float bias = 0;  ///< -infinity: never chosen
  };
  float repetition = 1, presence = 0, frequency = 0;
  std::vector<Token> tokens{};   ///< ascending
  std::vector<TokenId> shown{};  ///< by scored row: the token that its position shows; -1: a mask; empty: all are masks

  /// Changes the logits of tokens [first, first + logits.size()) of a scored row (index into StepPlan::scored).
  void apply(std::size_t scored, TokenId first, std::span<float> logits) const;
};

}  // namespace dllm
