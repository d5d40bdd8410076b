// Exact cache of block-causal models (LLaDA2, SDAR; autoregression is block length 1): K/V of a finished block depend
// on earlier blocks and itself only, so a row is recomputed exactly if it was last computed from another token or is in
// the window. The last pass over a block saw masks; its final tokens are forwarded together with the next block. This
// is dInfer's fused cross-block update (arXiv 2510.08666), which needs no special case here.
//
// The window is recomputed from its start, although nothing before the first stale row can have changed. With `settle`,
// those rows are left out: a window of several attention blocks then costs only its open blocks. Inside a bidirectional
// block no committed row is exact while its neighbours change, so rows never settle by age here.
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

struct BlockCausalOptions : KeepingOptions {
  std::optional<std::int32_t> settle;
};

OptionRows<BlockCausalOptions> block_causal_rows() {
  return join_rows<BlockCausalOptions>(
      OptionRows<BlockCausalOptions>{
          option("settle", &BlockCausalOptions::settle, 1, kMostInteger, "passes",
                 "with any value, finished attention blocks inside the window are not recomputed, without loss")
              .otherwise("never")},
      keeping_rows());
}

class BlockCausalCache : public CachePolicy {
 public:
  explicit BlockCausalCache(const BlockCausalOptions& options)
      : CachePolicy(options), settle_(options.settle.has_value()) {}

  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<BlockCausalCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    const Position window = settle_ && !context.wanted.empty() ? context.wanted.front() : context.needed.begin;
    const Position first = std::min({first_stale(context), window, context.horizon});
    return {positions({first, context.horizon}), {{0, context.horizon}}};
  }

 private:
  /// The first row whose K/V may differ from those of the current canvas. A row sees its whole block, so one changed
  /// token makes its block and all later ones stale.
  static Position first_stale(const CacheContext& context) {
    const Position block = std::max(1, context.causal_block);
    for (Position p = 0; p < context.horizon; ++p)
      if (context.cache.token_of(p) != context.canvas.token(p)) return p / block * block;
    return context.horizon;
  }

  bool settle_;
};

}  // namespace

CacheEntry block_causal_cache() {
  return declare_method<CachePolicy>("block-causal", "exact, for models whose attention is block-causal",
                                     block_causal_rows(),
                                     [](const BlockCausalOptions& options, const MethodContext&) {
                                       return std::make_unique<BlockCausalCache>(options);
                                     })
      .only_for([](const ModelDesc& desc) -> Expected<void> {
        if (desc.causal_block > 0) return {};
        return Error{ErrorCode::kUsage,
                     "its rows are final only under block-causal attention, and this model sees in all directions", "",
                     "give prefix or dual, which approximate, or none"};
      })
      .always({.exact_rows = true})
      .standard_for("where the model allows it", [](const ModelDesc& desc) { return desc.causal_block > 0; });
}

}  // namespace dllm
