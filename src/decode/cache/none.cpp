// Every step recomputes everything: this defines the model, and every cache is measured against it.
#include "decode/registry.h"

namespace dllm {
namespace {

class NoCache : public CachePolicy {
 public:
  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<NoCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    return {positions({0, context.horizon}), {{0, context.horizon}}};
  }
};

}  // namespace

CacheEntry no_cache() {
  return declare_method<CachePolicy>("none", "every row in every pass: the model's definition", OptionRows<NoOptions>{},
                                     [](const NoOptions&, const MethodContext&) { return std::make_unique<NoCache>(); })
      .standard_for("", [](const ModelDesc& desc) { return desc.causal_block == 0; });
}

}  // namespace dllm
