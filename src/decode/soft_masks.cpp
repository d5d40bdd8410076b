#include "decode/soft_masks.h"

#include <algorithm>
#include <cmath>

namespace dllm {

void SoftMasks::configure(ScoreRequest& request) const {
  if (!on()) return;
  request.top_tokens = std::max(request.top_tokens, config_.top);
  request.logits = request.logits || config_.top == 0;
}

double SoftMasks::least_threshold() const { return on() ? std::max(0.0, 1 - config_.per_pass * passes_) : 0; }

double SoftMasks::weight() const { return std::min(config_.first + config_.per_pass * passes_, config_.gain); }

void SoftMasks::record(Position position, const RowScore& row, std::span<const TopToken> top,
                       std::span<const float> logits) {
  std::vector<MixedToken>& mixture = mixtures_[position];
  mixture.clear();
  if (!logits.empty()) {
    const double largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0;
    for (float z : logits) sum += std::exp(static_cast<double>(z) - largest);
    for (std::size_t v = 0; v < logits.size(); ++v)
      mixture.push_back({static_cast<TokenId>(v),
                         static_cast<float>(weight() * std::exp(static_cast<double>(logits[v]) - largest) / sum)});
    return;
  }
  // The reduced row relates logits to probabilities through its own token; a token left out of the softmax cannot.
  if (row.token < 0 || !(row.confidence > 0)) return;
  for (const TopToken& candidate : top) {
    const double p = row.confidence * std::exp(static_cast<double>(candidate.logit) - static_cast<double>(row.logit));
    mixture.push_back({candidate.token, static_cast<float>(weight() * std::min(p, 1.0))});
  }
}

std::span<const MixedToken> SoftMasks::mixture(Position position) const {
  const auto found = mixtures_.find(position);
  if (found == mixtures_.end()) return {};
  return found->second;
}

}  // namespace dllm
