// Threshold on the margin p1 - p2 between the two likeliest tokens instead of on the confidence (diffuse-rs): a
// position whose runner-up is far less likely can be committed even if neither token is likely in absolute terms. The
// best is always committed, and with it all that equal it in float32, as for `threshold`.
#include <algorithm>
#include <limits>

#include "decode/method_entry.h"
#include "decode/registry.h"

namespace dllm {
namespace {

constexpr double kMarginTieWidth = 1e-5;

struct MarginOptions {
  double threshold = 0.9;
};

OptionRows<MarginOptions> margin_rows() {
  return {option("threshold", &MarginOptions::threshold, 0, 2, "",
                 "commit positions whose token leads the second likeliest by this probability")};
}

class Margin : public Decoder {
 public:
  explicit Margin(const MarginOptions& config) : threshold_(config.threshold) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    double best = -std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates)
      if (candidate.eligible) best = std::max(best, candidate.margin);
    const double bound = std::min(threshold_, best - kMarginTieWidth);
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.margin >= bound) edits.push_back(commit(candidate));
    return edits;
  }

 private:
  double threshold_;
};

}  // namespace

DecoderEntry margin_decoder() {
  return declare_method<Decoder>(
             "margin", "the threshold rule on the lead over the second likeliest token", margin_rows(),
             [](const MarginOptions& options, const MethodContext&) { return std::make_unique<Margin>(options); })
      .always({.stateless = true});
}

}  // namespace dllm
