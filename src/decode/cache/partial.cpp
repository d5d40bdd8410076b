// Adaptive partial refresh after dLLM-Cache (Liu et al., arXiv 2506.06295): the prompt is recomputed every
// `prompt_interval` passes, the answer every `response_interval`; in between only the rows of the answer that have
// changed most are, a fixed share. Wanted rows, and rows whose K/V were computed from another token than the canvas
// shows, are always recomputed.
//
// How much a row has changed is estimated differently here. Upstream computes the values V of the whole answer in every
// layer and compares them with the cached ones (cosine). Here a row that is not forwarded has no V to compare;
// computing it would take a pass over all rows, which is the cost that a cache avoids. Instead a row's drift is
// estimated from the changes around it since it was computed: the sum of 1 / (1 + |p - q|) over the positions q whose
// token has changed since. Attention between neighbours is strongest, so near changes count most. Upstream also caches
// attention and FFN outputs of unselected rows; here nothing would read them.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/to_size.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct PartialOptions : KeepingOptions {
  std::int32_t prompt_interval = 50, response_interval = 7;
  double refresh_share = 0.25;
};

OptionRows<PartialOptions> partial_rows() {
  using O = PartialOptions;
  return join_rows<O>(
      OptionRows<O>{
          option("prompt_interval", &O::prompt_interval, 1, kMostInteger, "passes",
                 "recompute the prompt every N passes"),
          option("response_interval", &O::response_interval, 1, kMostInteger, "passes",
                 "recompute the whole answer every N passes"),
          option("refresh_share", &O::refresh_share, 0, 1, "", "share of the answer that the other passes recompute")
              .only("with --response-interval above 1", [](const O& o) { return o.response_interval > 1; }),
      },
      keeping_rows());
}

class PartialCache : public CachePolicy {
 public:
  explicit PartialCache(const PartialOptions& options) : CachePolicy(options), config_(options) {}

  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<PartialCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    const Position prompt = std::min(context.canvas.prompt_end(), context.horizon);
    const PositionRange all{0, context.horizon}, response{prompt, context.horizon};
    note_changes(context);
    const bool prompt_due = pass_ % std::max(1, config_.prompt_interval) == 0;
    const bool response_due = pass_ % std::max(1, config_.response_interval) == 0;
    ++pass_;
    CacheDecision decision;
    decision.visible = {all};
    if (prompt_due) decision.rows = positions({0, prompt});
    const std::vector<Position> answer = response_due ? positions(response) : drifted(context, response);
    decision.rows.insert(decision.rows.end(), answer.begin(), answer.end());
    return decision;
  }

 private:
  /// Records the pass in which each position last showed a new token.
  void note_changes(const CacheContext& context) {
    const auto size = to_size(context.canvas.size());
    if (shown_.empty()) {
      shown_.assign(size, -1);
      changed_.assign(size, 0);
    }
    for (std::size_t i = 0; i < size; ++i) {
      const TokenId token = context.canvas.token(static_cast<Position>(i));
      if (shown_[i] != token) changed_[i] = context.cache.epoch() + 1;  // the coming pass is the first to show it
      shown_[i] = token;
    }
  }

  double drift(const CacheContext& context, Position p) const {
    double sum = 0;
    for (std::size_t q = 0; q < changed_.size(); ++q)
      if (changed_[q] > context.cache.epoch_of(p)) sum += 1 / (1 + std::abs(static_cast<double>(q) - p));
    return sum;
  }

  /// Stale rows, wanted rows, and the most drifted of the others up to the share.
  std::vector<Position> drifted(const CacheContext& context, PositionRange response) const {
    std::vector<Position> rows = stale_rows(context, response), wanted;
    for (Position p : context.wanted)
      if (response.contains(p)) wanted.push_back(p);
    std::vector<Position> must;
    std::set_union(rows.begin(), rows.end(), wanted.begin(), wanted.end(), std::back_inserter(must));
    std::vector<std::pair<double, Position>> others;
    for (Position p = response.begin; p < response.end; ++p)
      if (!std::binary_search(must.begin(), must.end(), p))
        if (const double moved = drift(context, p); moved > 0) others.emplace_back(moved, p);
    std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto share = static_cast<std::size_t>(config_.refresh_share * response.size());
    if (others.size() > share) others.resize(share);
    for (const auto& [moved, p] : others) must.push_back(p);
    std::sort(must.begin(), must.end());
    return must;
  }

  PartialOptions config_;
  std::int32_t pass_ = 0;
  std::vector<TokenId> shown_;
  std::vector<std::uint32_t> changed_;  ///< by position: the first pass that showed its current token
};

}  // namespace

CacheEntry partial_cache() {
  return declare_method<CachePolicy>(
      "partial", "prompt and answer at intervals, and the rows around what changed (dLLM-Cache)", partial_rows(),
      [](const PartialOptions& options, const MethodContext&) { return std::make_unique<PartialCache>(options); });
}

}  // namespace dllm
