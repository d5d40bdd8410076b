// dInfer's vicinity cache (dllm-reference C.8): like the dual cache, but with the window its neighbours are recomputed,
// `prefix_look` rows in front and `after_look` behind, so that the window sees what it has changed around it. They are
// never decoded. The first `warmup` passes of an answer are full: early predictions move everything.
//
// In place of upstream's copy the neighbours' K/V are written to the cache; every pass that reads them recomputes them,
// until the next full pass. Upstream refreshes once more if warm-up ends inside a later block, because its first
// filling passes by the rule for block changes; that is not reproduced.
#include <algorithm>

#include "decode/cache_policy.h"

namespace dllm {
namespace {

class VicinityCache : public CachePolicy {
 public:
  explicit VicinityCache(const CachePolicyConfig& config) : config_(config), refresh_(config) {}

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    const bool refresh = refresh_.due(context);
    if (passes_++ < config_.warmup || refresh) return {positions(all), {all}};
    const Position begin = std::max<Position>(0, context.needed.begin - config_.prefix_look);
    const Position end = static_cast<Position>(
        std::min<std::int64_t>(context.horizon, std::int64_t{context.needed.end} + config_.after_look));
    return {with_stale_prefix(context, positions({begin, end})), {all}};
  }

 private:
  CachePolicyConfig config_;
  RefreshClock refresh_;
  std::int32_t passes_ = 0;
};

}  // namespace

std::unique_ptr<CachePolicy> make_vicinity_cache(const CachePolicyConfig& config) {
  return std::make_unique<VicinityCache>(config);
}

}  // namespace dllm
