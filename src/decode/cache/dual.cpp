// Fast-dLLM's dual cache (dllm-reference B.5): the first pass of a window is full; later passes recompute the window
// alone, so the suffix stays as the first pass saw it. Writing the window's K/V in place equals upstream's replacement
// in a copy, because the window is recomputed in every pass that reads it.
#include <algorithm>

#include "decode/cache_policy.h"

namespace dllm {
namespace {

class DualCache : public CachePolicy {
 public:
  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (context.window_changed) return {positions(all), {all}};
    return {positions({context.needed.begin, std::min(context.needed.end, context.horizon)}), {all}};
  }
};

}  // namespace

std::unique_ptr<CachePolicy> make_dual_cache() { return std::make_unique<DualCache>(); }

}  // namespace dllm
