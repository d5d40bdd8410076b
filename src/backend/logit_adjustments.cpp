#include "backend/logit_adjustments.h"

#include <algorithm>

namespace dllm {

void LogitAdjustments::apply(std::size_t scored, TokenId first, std::span<float> logits) const {
  const TokenId own = scored < shown.size() ? shown[scored] : -1, end = first + static_cast<TokenId>(logits.size());
  auto at = std::lower_bound(tokens.begin(), tokens.end(), first,
                             [](const Token& token, TokenId id) { return token.token < id; });
  for (; at != tokens.end() && at->token < end; ++at) {
    float& logit = logits[static_cast<std::size_t>(at->token - first)];
    const std::int32_t count = at->in_answer - (at->token == own ? 1 : 0);
    if (at->in_prompt || count > 0) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (count > 0) logit = logit - presence - frequency * static_cast<float>(count);
    logit += at->bias;
  }
}

}  // namespace dllm
