// Threshold on the margin p1 - p2 between the two likeliest tokens instead of on the confidence (dllm-reference B.13):
// a position whose runner-up is far behind is safe to commit although neither token is likely in absolute terms. The
// best always goes, and with it whatever cannot be told from it in float32, as for `threshold`.
#include <algorithm>
#include <limits>

#include "decode/decoder.h"

namespace dllm {
namespace {

constexpr double kTieWidth = 1e-5;

class Margin : public Decoder {
 public:
  explicit Margin(const DecoderConfig& config) : threshold_(config.threshold) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    double best = -std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates)
      if (candidate.eligible) best = std::max(best, candidate.margin);
    const double bound = std::min(threshold_, best - kTieWidth);
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.margin >= bound) edits.push_back(commit(candidate));
    return edits;
  }

 private:
  double threshold_;
};

}  // namespace

std::unique_ptr<Decoder> make_margin_decoder(const DecoderConfig& config) { return std::make_unique<Margin>(config); }

}  // namespace dllm
