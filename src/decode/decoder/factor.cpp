// Fast-dLLM's factor rule (dllm-reference B.4). With confidences in descending order, n from 0, the n+1 best may be
// committed together if c_n >= 1 - f / (n + 2); the best always goes.
//
// Upstream's loop ends at the last index without telling "stopped here" from "never stopped": a break at the last
// position commits it all the same, and with two masks left both always go. --compat keeps that.
#include "decode/decoder.h"

namespace dllm {
namespace {

class Factor : public Decoder {
 public:
  explicit Factor(const DecoderConfig& config) : factor_(config.factor), compat_(config.compat) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits =
        commit_best(candidates, candidates.size(), [](const Candidate& candidate) { return candidate.log_odds; });
    edits.resize(std::min(edits.size(), count(edits, candidates.size())));
    return edits;
  }

 private:
  std::size_t count(const std::vector<Edit>& ranked, std::size_t masks) const {
    std::size_t n = 1;  // threshold(0) = -1: the best always passes
    while (n < ranked.size() && ranked[n].confidence >= 1.0 - factor_ / static_cast<double>(n + 2)) ++n;
    if (compat_ && n + 1 >= masks) return masks;
    return n;
  }

  double factor_;
  bool compat_;
};

}  // namespace

std::unique_ptr<Decoder> make_factor_decoder(const DecoderConfig& config) { return std::make_unique<Factor>(config); }

}  // namespace dllm
