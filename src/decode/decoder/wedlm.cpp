// WeDLM's rule (arXiv 2512.22737, "streaming parallel decoding"): every position whose entropy, plus a penalty for its
// distance from the first mask, is below a threshold; where there is none, the one of the lowest sum. So tokens tend to
// be decided from the left, and finished ones leave the window soon.
#include <memory>
#include <span>
#include <vector>

#include "decode/method_entry.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct WedlmOptions {
  double near_entropy = 0.4;
  double distance_penalty = 0.02;
};

/// Defaults of upstream's SamplingParams.
OptionRows<WedlmOptions> wedlm_rows() {
  using O = WedlmOptions;
  return {option("near_entropy", &O::near_entropy, 0, 1e6, "nats",
                 "commit positions whose entropy and penalty are below this together, at least the best"),
          option("distance_penalty", &O::distance_penalty, 0, 1e6, "nats",
                 "penalty per position between the first mask and this one")};
}

class Wedlm : public Decoder {
 public:
  explicit Wedlm(const WedlmOptions& config) : config_(config) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits;
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates) {
      if (!candidate.eligible) continue;
      const double sum = penalized(candidates, candidate);
      if (sum < config_.near_entropy) edits.push_back(commit(candidate));
      if (best == nullptr || sum < penalized(candidates, *best)) best = &candidate;
    }
    if (edits.empty() && best != nullptr) edits.push_back(commit(*best));
    return edits;
  }

 private:
  double penalized(std::span<const Candidate> candidates, const Candidate& candidate) const {
    return candidate.entropy + config_.distance_penalty * (candidate.position - candidates.front().position);
  }

  WedlmOptions config_;
};

}  // namespace

DecoderEntry wedlm_decoder() {
  return declare_method<Decoder>(
             "wedlm", "low entropies near the first mask (WeDLM)", wedlm_rows(),
             [](const WedlmOptions& options, const MethodContext&) { return std::make_unique<Wedlm>(options); })
      .always({.stateless = true})
      .standard_for("for models whose masks see all decided tokens (WeDLM)",
                    [](const ModelDesc& desc) { return desc.decided_first; });
}

}  // namespace dllm
