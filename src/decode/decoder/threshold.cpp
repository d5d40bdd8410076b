// Confidence threshold as dInfer states it (dllm-reference C.3): commit every eligible c >= min(tau, best - 1e-5), so
// the best always goes, and with it whatever cannot be told from it in float32.
#include <algorithm>
#include <limits>

#include "decode/decoder.h"

namespace dllm {
namespace {

constexpr double kTieWidth = 1e-5;

class Threshold : public Decoder {
 public:
  explicit Threshold(const DecoderConfig& config) : threshold_(config.threshold) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    double best = -std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates)
      if (candidate.eligible) best = std::max(best, candidate.confidence);
    const double bound = std::min(std::max(threshold_, context.least_threshold), best - kTieWidth);
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.confidence >= bound) edits.push_back(commit(candidate));
    return edits;
  }

 private:
  double threshold_;
};

}  // namespace

std::unique_ptr<Decoder> make_threshold_decoder(const DecoderConfig& config) {
  return std::make_unique<Threshold>(config);
}

}  // namespace dllm
