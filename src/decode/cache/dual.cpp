// Fast-dLLM's dual cache (arXiv 2505.22618): the first pass of a window is full; later passes recompute the window
// only, so the suffix keeps the first pass's K/V. Upstream replaces the window's K/V in a copy; writing in place is
// equivalent, because every pass that reads them recomputes the window.
//
// With `settle`, a later pass also leaves out rows of the window that were forwarded `settle` times with their token:
// their K/V then miss later commits, an error of the same kind as the frozen suffix's.
#include <algorithm>
#include <utility>
#include <vector>

#include "decode/registry.h"

namespace dllm {
namespace {

struct DualOptions : RefreshOptions {
  std::optional<std::int32_t> settle;
};

OptionRows<DualOptions> dual_rows() {
  return join_rows<DualOptions>(
      OptionRows<DualOptions>{option("settle", &DualOptions::settle, 1, kMostInteger, "passes",
                                     "stop recomputing a committed row of the block after this many passes")
                                  .otherwise("never")},
      refresh_rows());
}

class DualCache : public CachePolicy {
 public:
  explicit DualCache(const DualOptions& options)
      : CachePolicy(options), refresh_(options), settle_(static_cast<std::uint32_t>(options.settle.value_or(0))) {}

  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<DualCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    if (refresh_.due(context)) return {positions(all), {all}, /*fills=*/true};
    std::vector<Position> rows = positions({context.needed.begin, std::min(context.needed.end, context.horizon)});
    // A wanted row stays: in shifted models, a settled row may predict its neighbour.
    if (settle_ > 0)
      std::erase_if(rows, [&](Position p) {
        return settled(context, p) && !std::binary_search(context.wanted.begin(), context.wanted.end(), p);
      });
    return {with_stale_prefix(context, std::move(rows)), {all}};
  }

 private:
  /// Counts passes rather than writes of the row: a row left out also ages, so it stays settled.
  bool settled(const CacheContext& context, Position p) const {
    const KvCache& cache = context.cache;
    return !context.canvas.masked(p) && cache.holds(p) && cache.token_of(p) == context.canvas.token(p) &&
           cache.epoch() - cache.same_since(p) + 1 >= settle_;
  }

  RefreshClock refresh_;
  std::uint32_t settle_;  ///< 0: never
};

}  // namespace

CacheEntry dual_cache() {
  return declare_method<CachePolicy>(
             "dual", "a full pass per block, then only the block (Fast-dLLM)", dual_rows(),
             [](const DualOptions& options, const MethodContext&) { return std::make_unique<DualCache>(options); })
      .depending_on(dual_rows(), refill_traits);
}

}  // namespace dllm
