// Fast-dLLM's prefix cache (arXiv 2505.22618): the first pass of a window is full and its K/V are kept; later passes
// recompute the window and everything after it against the kept prefix.
#include "decode/registry.h"

namespace dllm {
namespace {

class PrefixCache : public CachePolicy {
 public:
  explicit PrefixCache(const RefreshOptions& options) : CachePolicy(options), refresh_(options) {}

  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<PrefixCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (refresh_.due(context)) return {positions(all), {all}, /*fills=*/true};
    return {with_stale_prefix(context, positions({context.needed.begin, context.horizon})), {all}};
  }

 private:
  RefreshClock refresh_;
};

}  // namespace

CacheEntry prefix_cache() {
  return declare_method<CachePolicy>(
             "prefix", "a full pass per block, then the block and all that follows (Fast-dLLM)", refresh_rows(),
             [](const RefreshOptions& options, const MethodContext&) { return std::make_unique<PrefixCache>(options); })
      .depending_on(refresh_rows(), refill_traits);
}

}  // namespace dllm
