// Fast-dLLM's prefix cache (dllm-reference B.5): the first pass of a window is full and keeps its K/V; later passes
// recompute the window and everything behind it against the kept prefix.
#include "decode/cache_policy.h"

namespace dllm {
namespace {

class PrefixCache : public CachePolicy {
 public:
  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (context.window_changed) return {positions(all), {all}};
    return {positions({context.needed.begin, context.horizon}), {all}};
  }
};

}  // namespace

std::unique_ptr<CachePolicy> make_prefix_cache(const CachePolicyConfig&) { return std::make_unique<PrefixCache>(); }

}  // namespace dllm
