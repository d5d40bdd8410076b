// Entropy bound (EB sampling; SDAR's "entropy_bounded", dllm-reference B.12): positions by ascending entropy, the
// longest prefix whose entropies sum to at most the bound, at least one. The sum bounds the error of deciding them
// jointly as if they were independent: the mutual information of variables never exceeds the sum of their entropies.
#include <algorithm>

#include "decode/decoder.h"

namespace dllm {
namespace {

class EntropyBound : public Decoder {
 public:
  explicit EntropyBound(const DecoderConfig& config) : bound_(config.entropy_bound) {}

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

std::unique_ptr<Decoder> make_entropy_bound_decoder(const DecoderConfig& config) {
  return std::make_unique<EntropyBound>(config);
}

}  // namespace dllm
