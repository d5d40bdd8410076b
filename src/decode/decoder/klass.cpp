// KLASS (Kim et al., arXiv 2511.05664; the authors' llada_klass.py): a mask becomes a token if its confidence exceeds
// `threshold` and its distribution has been stable: in each of the last `kl_history` passes, the divergence
// KL(p_now || p_before) was below `kl_threshold`. If no mask is ready, the best one becomes a token.
//
// The divergence is that of the `kl_tokens` likeliest tokens of the pass before, and of all others as one event.
// Merging events makes a divergence smaller, never larger, so a mask that is stable by upstream's sum is stable here. A
// position of a later block is predicted from the block's first pass on; upstream has also compared it before.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct KlassOptions : ThresholdOptions {
  double kl_threshold = 0.01;
  std::int32_t kl_history = 2, kl_tokens = 8;
};

OptionRows<KlassOptions> klass_rows() {
  using O = KlassOptions;
  return join_rows<O>(
      threshold_rows(),
      OptionRows<O>{
          option("kl_threshold", &O::kl_threshold, 0, 1e6, "nats", "a distribution that changes less is stable"),
          option("kl_history", &O::kl_history, 1, kMostInteger, "passes",
                 "how many passes in a row it must have been stable"),
          option("kl_tokens", &O::kl_tokens, 1, 1000, "tokens", "likeliest tokens whose probabilities are compared"),
      });
}

class Klass : public Decoder {
 public:
  explicit Klass(const KlassOptions& config) : config_(config) {}

  void configure(ScoreRequest& request) const override {
    request.top_tokens = std::max(request.top_tokens, config_.kl_tokens);
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    for (const Position p : wanted(context))
      if (const auto known = before_.find(p); known != before_.end())
        for (const auto& [token, probability] : known->second.tokens) result.push_back({p, token});
    return result;
  }

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits;
    std::map<Position, Distribution> now;
    for (const Candidate& candidate : candidates) {
      Distribution& own = now[candidate.position];
      if (const auto known = before_.find(candidate.position); known != before_.end())
        own.stable = divergence(known->second, candidate) < config_.kl_threshold ? known->second.stable + 1 : 0;
      for (const TopToken& top : candidate.top)
        if (top.token >= 0) own.tokens.emplace_back(top.token, probability_of(candidate, top.logit));
      if (candidate.eligible && candidate.confidence > config_.threshold && own.stable >= config_.kl_history)
        edits.push_back(commit(candidate));
    }
    before_ = std::move(now);
    if (!edits.empty()) return edits;
    return commit_best(candidates, 1, [](const Candidate& candidate) { return candidate.log_odds; });
  }

 private:
  struct Distribution {
    std::vector<std::pair<TokenId, double>> tokens;
    std::int32_t stable = 0;  ///< passes
  };

  /// Of the candidate from the distribution before; `queried` has the logits of its tokens.
  static double divergence(const Distribution& before, const Candidate& candidate) {
    constexpr double kLeast = 1e-12;  // upstream's, within the logarithms
    double sum = 0, rest = 1, rest_before = 1;
    for (std::size_t i = 0; i < before.tokens.size(); ++i) {
      const double p = probability_of_queried(candidate, i), q = before.tokens[i].second;
      sum += p * (std::log(p + kLeast) - std::log(q + kLeast));
      rest -= p;
      rest_before -= q;
    }
    rest = std::max(rest, 0.0);
    return sum + rest * (std::log(rest + kLeast) - std::log(std::max(rest_before, 0.0) + kLeast));
  }

  KlassOptions config_;
  std::map<Position, Distribution> before_;  ///< what the last pass predicted
};

}  // namespace

DecoderEntry klass_decoder() {
  return declare_method<Decoder>(
             "klass", "confident positions whose distribution has been stable (KLASS)", klass_rows(),
             [](const KlassOptions& options, const MethodContext&) { return std::make_unique<Klass>(options); })
      .always({.greedy = true});
}

}  // namespace dllm
