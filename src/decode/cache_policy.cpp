#include "decode/cache_policy.h"

#include <algorithm>

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

bool RefreshClock::due(const CacheContext& context) {
  const bool first = age_ < 0;
  ++age_;
  const bool full = first || (on_unit_ && context.window_changed) || (interval_ > 0 && age_ >= interval_);
  if (full) age_ = 0;
  return full;
}

}  // namespace dllm
