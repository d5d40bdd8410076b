// Fast-dLLM's dual cache (dllm-reference B.5): the first pass of a window is full; later passes recompute the window
// alone, so the suffix stays as the first pass saw it. Writing the window's K/V in place equals upstream's replacement
// in a copy, because the window is recomputed in every pass that reads it.
//
// With `settle`, a later pass also leaves out the committed rows of the window that were forwarded that often with
// their token: their K/V then lack what was committed since, an error of the same kind as the frozen suffix's.
#include <algorithm>
#include <utility>
#include <vector>

#include "decode/cache_policy.h"

namespace dllm {
namespace {

class DualCache : public CachePolicy {
 public:
  explicit DualCache(const CachePolicyConfig& config)
      : refresh_(config), settle_(static_cast<std::uint32_t>(config.settle)) {}

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (refresh_.due(context)) return {positions(all), {all}};
    std::vector<Position> rows = positions({context.needed.begin, std::min(context.needed.end, context.horizon)});
    // A wanted row stays: of shifted models, it may be a settled one that predicts its neighbour.
    if (settle_ > 0)
      std::erase_if(rows, [&](Position p) {
        return settled(context, p) && !std::binary_search(context.wanted.begin(), context.wanted.end(), p);
      });
    return {with_stale_prefix(context, std::move(rows)), {all}};
  }

 private:
  /// Counts passes rather than writes of the row: a row left out ages too, so it stays settled.
  bool settled(const CacheContext& context, Position p) const {
    const KvCache& cache = context.cache;
    return !context.canvas.masked(p) && cache.holds(p) && cache.token_of(p) == context.canvas.token(p) &&
           cache.epoch() - cache.same_since(p) + 1 >= settle_;
  }

  RefreshClock refresh_;
  std::uint32_t settle_;
};

}  // namespace

std::unique_ptr<CachePolicy> make_dual_cache(const CachePolicyConfig& config) {
  return std::make_unique<DualCache>(config);
}

}  // namespace dllm
