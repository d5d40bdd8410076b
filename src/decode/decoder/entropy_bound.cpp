// Entropy bound (EB-Sampler, arXiv 2505.24857; SDAR's "entropy_bounded"): positions in ascending order of entropy;
// commits the longest prefix whose entropies sum to at most the bound, at least one. The sum bounds the error of
// deciding them jointly as if they were independent: the mutual information of variables never exceeds the sum of their
// entropies.
#include <algorithm>

#include "decode/method_entry.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct EntropyBoundOptions {
  double entropy_bound = 0.35;
};

OptionRows<EntropyBoundOptions> entropy_bound_rows() {
  return {option("entropy_bound", &EntropyBoundOptions::entropy_bound, 0, 1e6, "nats",
                 "largest sum of the entropies that a step commits")};
}

class EntropyBound : public Decoder {
 public:
  explicit EntropyBound(const EntropyBoundOptions& config) : bound_(config.entropy_bound) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    std::vector<double> entropies;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible) entropies.push_back(candidate.entropy);
    std::sort(entropies.begin(), entropies.end());
    std::size_t count = 0;
    for (double sum = 0; count < entropies.size(); ++count) {
      sum += entropies[count];
      if (count > 0 && sum > bound_) break;
    }
    return commit_best(candidates, count, [](const Candidate& candidate) { return -candidate.entropy; });
  }

 private:
  double bound_;
};

}  // namespace

DecoderEntry entropy_bound_decoder() {
  return declare_method<Decoder>("entropy-bound", "the lowest entropies, up to a bound on their sum",
                                 entropy_bound_rows(),
                                 [](const EntropyBoundOptions& options, const MethodContext&) {
                                   return std::make_unique<EntropyBound>(options);
                                 })
      .always({.stateless = true});
}

}  // namespace dllm
