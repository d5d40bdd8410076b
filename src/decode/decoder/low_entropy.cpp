// d3LLM's rule (github.com/hao-ai-lab/d3LLM): every position whose entropy is at most a threshold, the most certain one
// always, and one of the first unfinished block, so that a window of several blocks does not leave it waiting.
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

struct LowEntropyOptions {
  double low_entropy = 0.5;
};

OptionRows<LowEntropyOptions> low_entropy_rows() {
  return {option("low_entropy", &LowEntropyOptions::low_entropy, 0, 1e6, "nats",
                 "commit positions of at most this entropy, and the most certain one")};
}

class LowEntropy : public Decoder {
 public:
  LowEntropy(const LowEntropyOptions& config, const MethodContext& context)
      : threshold_(config.low_entropy), context_(context) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const Canvas& canvas = context.canvas;
    const Position first = canvas.first_masked(canvas.prompt_end());
    const Position first_end = first < canvas.size() ? block_at(context_, canvas, first).end : first;
    const Candidate *best = nullptr, *best_of_first = nullptr;
    bool first_moves = false;
    for (const Candidate& candidate : candidates) {
      if (!candidate.eligible) continue;
      if (best == nullptr || candidate.entropy < best->entropy) best = &candidate;
      if (candidate.position >= first_end) continue;
      first_moves = first_moves || candidate.entropy <= threshold_;
      if (best_of_first == nullptr || candidate.entropy < best_of_first->entropy) best_of_first = &candidate;
    }
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates) {
      const bool needed = &candidate == best || (!first_moves && &candidate == best_of_first);
      if (candidate.eligible && (needed || candidate.entropy <= threshold_)) edits.push_back(commit(candidate));
    }
    return edits;
  }

 private:
  double threshold_;
  MethodContext context_;
};

}  // namespace

DecoderEntry low_entropy_decoder() {
  return declare_method<Decoder>("low-entropy", "every low entropy, and one position of the first unfinished block",
                                 low_entropy_rows(),
                                 [](const LowEntropyOptions& options, const MethodContext& context) {
                                   return std::make_unique<LowEntropy>(options, context);
                                 })
      .always({.stateless = true});
}

}  // namespace dllm
