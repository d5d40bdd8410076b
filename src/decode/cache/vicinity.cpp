// dInfer's vicinity cache (arXiv 2510.08666): like the dual cache, but the window's neighbours are recomputed with it,
// `prefix_look` rows before and `after_look` after it, so that the window sees how it has changed them. They are never
// decoded. The first `warmup` passes of an answer are full, because early predictions change everything.
//
// Upstream works on a copy; here the neighbours' K/V are written to the cache, and every pass that reads them
// recomputes them, until the next full pass. Upstream's warm-up passes fill no cache, so that one more full pass
// follows them, in the block where they end. Here the last of them fills it, which saves that pass, except under
// --compat. There the block of that full pass also gets the full pass of a new block, after one of its window, unless
// it is the first: upstream does not remember at the former which block it was for.
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

struct VicinityOptions : RefreshOptions {
  Position prefix_look = 16, after_look = 16;
  std::int32_t cache_warmup = 4;
};

OptionRows<VicinityOptions> vicinity_rows() {
  using O = VicinityOptions;
  return join_rows<O>(
      OptionRows<O>{
          option("prefix_look", &O::prefix_look, 0, kMostPositions, "rows",
                 "positions before the window that are recomputed with it"),
          option("after_look", &O::after_look, 0, kMostPositions, "rows",
                 "positions after the window that are recomputed with it"),
          option("cache_warmup", &O::cache_warmup, 0, kMostInteger, "passes",
                 "full passes at the beginning of an answer"),
      },
      refresh_rows());
}

class VicinityCache : public CachePolicy {
 public:
  VicinityCache(const VicinityOptions& options, bool compat)
      : CachePolicy(options), config_(options), compat_(compat), refresh_(options) {}

  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<VicinityCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    const bool refresh = refresh_.due(context);
    const std::int32_t pass = passes_++;
    if (pass == 0) first_block_ = context.needed.begin;
    if (pass < config_.cache_warmup) return {positions(all), {all}};
    const bool again = compat_ && fills_again(pass, context.needed.begin);
    if (refresh || again) return {positions(all), {all}, /*fills=*/true};
    const Position begin = std::max<Position>(0, context.needed.begin - config_.prefix_look);
    const Position end = static_cast<Position>(
        std::min<std::int64_t>(context.horizon, std::int64_t{context.needed.end} + config_.after_look));
    return {with_stale_prefix(context, positions({begin, end})), {all}};
  }

 private:
  /// Upstream's full passes after the warm-up that are not the first of a block.
  bool fills_again(std::int32_t pass, Position block) {
    const std::int32_t after = pass - config_.cache_warmup;
    if (after == 0) filled_block_ = block;
    return after == 0 || (after == 2 && block == filled_block_ && block != first_block_);
  }

  VicinityOptions config_;
  bool compat_;
  RefreshClock refresh_;
  std::int32_t passes_ = 0;
  Position first_block_ = 0;    ///< begin of the rows needed by the answer's first pass
  Position filled_block_ = -1;  ///< ... by the first pass after the warm-up
};

}  // namespace

CacheEntry vicinity_cache() {
  return declare_method<CachePolicy>("vicinity", "dual, with the rows next to the window (dInfer)", vicinity_rows(),
                                     [](const VicinityOptions& options, const MethodContext& context) {
                                       return std::make_unique<VicinityCache>(options, context.compat);
                                     })
      .depending_on(vicinity_rows(), refill_traits);
}

}  // namespace dllm
