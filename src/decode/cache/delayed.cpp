// dKV-Cache (Ma et al., arXiv 2505.15781): the K/V of a token settle only after it is decoded, so they are cached one
// pass late. A row is forwarded while it is masked, then `delay` times with its token, and then kept. The first pass is
// full, and so is every `refresh_interval`-th.
//
// delayed: all masks of the canvas are forwarded (upstream's "Decode"). delayed-greedy: only the masks of the window
// are; the suffix keeps the K/V of the last full pass (upstream's "Greedy", whose local window is the decoding window
// here). delayed-pd: full passes leave out the prompt, which keeps the K/V of the first pass ("PD").
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

enum class Variant { kDecode, kGreedy, kPrefill };

struct DelayedOptions : IntervalOptions {
  std::int32_t cache_delay = 1;
};

OptionRows<DelayedOptions> delayed_rows() {
  return join_rows<DelayedOptions>(
      OptionRows<DelayedOptions>{option("cache_delay", &DelayedOptions::cache_delay, 1, kMostInteger, "passes",
                                        "recompute a row for this many passes after its token is committed")},
      interval_rows());
}

class DelayedCache : public CachePolicy {
 public:
  DelayedCache(const DelayedOptions& options, Variant variant)
      : CachePolicy(options), config_(options), variant_(variant) {}

  std::unique_ptr<CachePolicy> clone() const override { return std::make_unique<DelayedCache>(*this); }

  CacheDecision decide(const CacheContext& context) override {
    const PositionRange all{0, context.horizon};
    const bool first = age_ < 0;
    const bool full = first || (config_.refresh_interval && age_ + 1 >= *config_.refresh_interval);
    age_ = full ? 0 : age_ + 1;
    if (full) {
      const Position begin = first || variant_ != Variant::kPrefill ? 0 : context.canvas.prompt_end();
      return {positions({begin, std::max(begin, context.horizon)}), {all}};
    }
    CacheDecision decision;
    decision.visible = {all};
    for (Position p = 0; p < context.horizon; ++p)
      if (forwarded(context, p)) decision.rows.push_back(p);
    return decision;
  }

 private:
  bool forwarded(const CacheContext& context, Position p) const {
    if (context.canvas.masked(p)) return variant_ != Variant::kGreedy || context.needed.contains(p);
    const KvCache& cache = context.cache;
    if (!cache.holds(p) || cache.token_of(p) != context.canvas.token(p)) return true;
    // The first pass computes every prompt row from its token, and there are no decoded tokens to delay.
    if (p < context.canvas.prompt_end()) return false;
    return cache.epoch() - cache.same_since(p) + 1 < static_cast<std::uint32_t>(config_.cache_delay);
  }

  DelayedOptions config_;
  Variant variant_;
  std::int32_t age_ = -1;  ///< passes since the last full one; -1: none yet
};

CacheEntry delayed_entry(std::string name, std::string meaning, Variant variant) {
  return declare_method<CachePolicy>(std::move(name), std::move(meaning), delayed_rows(),
                                     [variant](const DelayedOptions& options, const MethodContext&) {
                                       return std::make_unique<DelayedCache>(options, variant);
                                     });
}

}  // namespace

CacheEntry delayed_cache() {
  return delayed_entry("delayed", "rows are cached one pass after their token is committed (dKV-Cache)",
                       Variant::kDecode);
}

CacheEntry delayed_greedy_cache() {
  return delayed_entry("delayed-greedy", "delayed; recomputes only masks of the window", Variant::kGreedy);
}

CacheEntry delayed_prefill_cache() {
  return delayed_entry("delayed-pd", "delayed; full passes do not recompute the prompt", Variant::kPrefill);
}

}  // namespace dllm
