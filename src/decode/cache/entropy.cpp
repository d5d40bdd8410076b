// EntropyCache (Cheong et al., arXiv 2603.18489): the K/V of other rows drift most after tokens that the model was not
// sure of. If the largest entropy among the predictions that the last pass turned into tokens exceeds a bound, the next
// pass is full. Otherwise it recomputes what is predicted, the latest committed tokens, whose features go on changing
// for some passes, and rows whose K/V are those of another token.
//
// The authors' program was not published when this was written: the bound and the number of tokens are ours. Tokens
// that no prediction of the last pass became (drafts that are accepted without a check, results of a second path) count
// as committed, but have no entropy.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct EntropyOptions : KeepingOptions {
  double refresh_entropy = 1;
  std::int32_t recent_rows = 8;
};

OptionRows<EntropyOptions> entropy_rows() {
  using O = EntropyOptions;
  return join_rows<O>(
      OptionRows<O>{
          option("refresh_entropy", &O::refresh_entropy, 0, 1e6, "nats",
                 "make a full pass after one that committed a token whose prediction had a larger entropy"),
          option("recent_rows", &O::recent_rows, 0, kMostPositions, "rows",
                 "recompute that many of the latest committed tokens in the other passes"),
      },
      keeping_rows());
}

class EntropyCache : public CachePolicy {
 public:
  explicit EntropyCache(const EntropyOptions& options) : CachePolicy(options), config_(options) {}

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (std::exchange(first_, false) || unsure(context)) return {positions(all), {all}};
    std::vector<Position> rows = stale_rows(context, all);
    const std::vector<Position> recent = latest(context);
    rows.insert(rows.end(), context.wanted.begin(), context.wanted.end());
    rows.insert(rows.end(), recent.begin(), recent.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return {std::move(rows), {all}};
  }

 private:
  bool unsure(const CacheContext& context) const {
    return std::ranges::any_of(context.predicted, [&](const Candidate& candidate) {
      return context.age(candidate.position) == 0 && candidate.entropy > config_.refresh_entropy;
    });
  }

  /// Before the horizon, in no order; of tokens of one pass the first.
  std::vector<Position> latest(const CacheContext& context) const {
    std::vector<Position> tokens;
    for (Position p = 0; p < context.horizon; ++p)
      if (context.age(p) >= 0) tokens.push_back(p);
    std::ranges::stable_sort(tokens, {}, [&](Position p) { return context.age(p); });
    if (tokens.size() > to_size(config_.recent_rows)) tokens.resize(to_size(config_.recent_rows));
    return tokens;
  }

  EntropyOptions config_;
  bool first_ = true;
};

}  // namespace

CacheEntry entropy_cache() {
  return declare_method<CachePolicy>(
             "entropy", "full passes after unsure commits, else masks and latest tokens (EntropyCache)", entropy_rows(),
             [](const EntropyOptions& options, const MethodContext&) {
               return std::make_unique<EntropyCache>(options);
             })
      .always({.asks_predictions = true});
}

}  // namespace dllm
