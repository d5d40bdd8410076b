#include "decode/cache/cache_policy.h"

#include <algorithm>

#include "decode/method_traits.h"
#include "decode/option_row.h"

namespace dllm {

std::vector<Position> positions(PositionRange range) {
  std::vector<Position> result;
  for (Position p = range.begin; p < range.end; ++p) result.push_back(p);
  return result;
}

std::vector<Position> stale_rows(const CacheContext& context, PositionRange range) {
  std::vector<Position> result;
  for (Position p = range.begin; p < range.end; ++p)
    if (!context.cache.holds(p) || context.cache.token_of(p) != context.canvas.token(p)) result.push_back(p);
  return result;
}

std::vector<Position> with_stale_prefix(const CacheContext& context, std::vector<Position> rows) {
  std::vector<Position> result = stale_rows(context, {0, rows.empty() ? context.needed.begin : rows.front()});
  result.insert(result.end(), rows.begin(), rows.end());
  return result;
}

OptionRows<KeepingOptions> keeping_rows() {
  return {option("keep_front", &KeepingOptions::keep_front,
                 "shifted models: forward the row before the window, which predicts its first position, only "
                 "once per window")
              .checked([](const KeepingOptions& options, const ModelDesc& desc) -> Expected<void> {
                if (!options.keep_front || desc.logit_shift > 0) return {};
                return Error{ErrorCode::kUsage,
                             "the model predicts a position from its own row, not from the one before", "",
                             "leave the option out"};
              })};
}

OptionRows<IntervalOptions> interval_rows() {
  return join_rows<IntervalOptions>(
      OptionRows<IntervalOptions>{option("refresh_interval", &IntervalOptions::refresh_interval, 1, kMostInteger,
                                         "passes", "make a full pass every N passes")
                                      .otherwise("only those of the policy")},
      keeping_rows());
}

OptionRows<RefreshOptions> refresh_rows() {
  using When = RefreshOptions::When;
  return join_rows<RefreshOptions>(
      OptionRows<RefreshOptions>{option("refresh", &RefreshOptions::refresh,
                                        {{"block", When::kBlock}, {"once", When::kOnce}},
                                        "make a full pass for every block, or only for the first")},
      interval_rows());
}

MethodTraits refill_traits(const RefreshOptions& options) {
  return {.refills_blocks = options.refresh == RefreshOptions::When::kBlock};
}

bool RefreshClock::due(const CacheContext& context) {
  const bool first = age_ < 0;
  ++age_;
  const bool full = first || (on_unit_ && context.window_changed) || (interval_ > 0 && age_ >= interval_);
  if (full) age_ = 0;
  return full;
}

}  // namespace dllm
