// Fast-dLLM's factor rule (arXiv 2505.22618). With confidences in descending order, n from 0, the n+1 best may be
// committed together if c_n >= 1 - f / (n + 2); the best is always committed.
//
// Upstream's loop does not distinguish "stopped at the last index" from "never stopped": a break at the last position
// commits it anyway, so with two masks left both are always committed. --compat keeps that.
#include <algorithm>

#include "decode/method_entry.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct FactorOptions {
  double factor = 1.0;
};

OptionRows<FactorOptions> factor_rows() {
  return {option("factor", &FactorOptions::factor, 0, 1e6, "",
                 "Fast-dLLM's factor: a larger one commits more per step; with --compat as upstream computes it")};
}

class Factor : public Decoder {
 public:
  Factor(const FactorOptions& options, const MethodContext& context)
      : factor_(options.factor), compat_(context.compat) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits =
        commit_best(candidates, candidates.size(), [](const Candidate& candidate) { return candidate.log_odds; });
    edits.resize(std::min(edits.size(), count(edits, candidates.size())));
    return edits;
  }

 private:
  std::size_t count(const std::vector<Edit>& ranked, std::size_t masks) const {
    std::size_t n = 1;  // threshold(0) = -1: the best is always committed
    while (n < ranked.size() && ranked[n].confidence >= 1.0 - factor_ / static_cast<double>(n + 2)) ++n;
    if (compat_ && n + 1 >= masks) return masks;
    return n;
  }

  double factor_;
  bool compat_;
};

}  // namespace

DecoderEntry factor_decoder() {
  return declare_method<Decoder>("factor", "the n best, for the largest n that their confidences allow (Fast-dLLM)",
                                 factor_rows(),
                                 [](const FactorOptions& options, const MethodContext& context) {
                                   return std::make_unique<Factor>(options, context);
                                 })
      .always({.stateless = true});
}

}  // namespace dllm
