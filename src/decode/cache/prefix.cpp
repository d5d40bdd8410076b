// Fast-dLLM's prefix cache (dllm-reference B.5): the first pass of a window is full and keeps its K/V; later passes
// recompute the window and everything behind it against the kept prefix.
#include "decode/cache_policy.h"

namespace dllm {
namespace {

class PrefixCache : public CachePolicy {
 public:
  explicit PrefixCache(const CachePolicyConfig& config) : refresh_(config) {}

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (refresh_.due(context)) return {positions(all), {all}};
    return {with_stale_prefix(context, positions({context.needed.begin, context.horizon})), {all}};
  }

 private:
  RefreshClock refresh_;
};

}  // namespace

std::unique_ptr<CachePolicy> make_prefix_cache(const CachePolicyConfig& config) {
  return std::make_unique<PrefixCache>(config);
}

}  // namespace dllm
