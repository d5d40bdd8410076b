// Confidence threshold as in dInfer (arXiv 2510.08666): commit every eligible c >= min(tau, best - 1e-5), so the best
// is always committed, and with it all that equal it in float32.
#include <algorithm>
#include <limits>
#include <optional>

#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

constexpr double kThresholdTieWidth = 1e-5;

class Threshold : public Decoder {
 public:
  explicit Threshold(const ThresholdOptions& config) : threshold_(config.threshold) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    double best = -std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates)
      if (candidate.eligible) best = std::max(best, candidate.confidence);
    const double bound = std::min(std::max(threshold_, context.least_threshold), best - kThresholdTieWidth);
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.confidence >= bound) edits.push_back(commit(candidate));
    return edits;
  }

  std::optional<CommitRule> rule(const DecodeContext& context, std::int32_t) const override {
    CommitRule rule;
    rule.threshold = std::max(threshold_, context.least_threshold);
    rule.tie = kThresholdTieWidth;
    return rule;
  }

 private:
  double threshold_;
};

}  // namespace

DecoderEntry threshold_decoder() {
  return declare_method<Decoder>(
             "threshold", "every position above a confidence, at least the best (dInfer)", threshold_rows(),
             [](const ThresholdOptions& options, const MethodContext&) { return std::make_unique<Threshold>(options); })
      .always({.stateless = true})
      .standard_for("", [](const ModelDesc& desc) {
        return desc.mask.has_value() && desc.modes.empty() && !desc.soft_tokens && !desc.decided_first;
      });
}

}  // namespace dllm
