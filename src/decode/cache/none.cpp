// Everything is recomputed at every step: the definition of the model, and the yardstick of every cache.
#include "decode/cache_policy.h"

namespace dllm {
namespace {

class NoCache : public CachePolicy {
 public:
  CacheDecision decide(const CacheContext& context) override {
    return {positions({0, context.horizon}), {{0, context.horizon}}};
  }
};

}  // namespace

std::unique_ptr<CachePolicy> make_no_cache(const CachePolicyConfig&) { return std::make_unique<NoCache>(); }

}  // namespace dllm
