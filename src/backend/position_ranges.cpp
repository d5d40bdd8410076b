#include "backend/position_ranges.h"

#include <algorithm>
#include <utility>

namespace dllm {

void append(std::vector<PositionRange>& ranges, Position position) {
  if (ranges.empty() || ranges.back().end != position) ranges.push_back({position, position});
  ranges.back().end = position + 1;
}

void unite(std::vector<PositionRange>& ranges, PositionRange range) {
  if (range.size() <= 0) return;
  ranges.insert(std::ranges::lower_bound(ranges, range.begin, {}, &PositionRange::begin), range);
  std::vector<PositionRange> joined;
  for (const PositionRange& one : ranges)
    if (!joined.empty() && joined.back().end >= one.begin)
      joined.back().end = std::max(joined.back().end, one.end);
    else
      joined.push_back(one);
  ranges = std::move(joined);
}

std::vector<PositionRange> common(std::span<const PositionRange> one, std::span<const PositionRange> other) {
  std::vector<PositionRange> both;
  for (auto a = one.begin(), b = other.begin(); a != one.end() && b != other.end();) {
    const PositionRange part{std::max(a->begin, b->begin), std::min(a->end, b->end)};
    if (part.size() > 0 && !both.empty() && both.back().end == part.begin)
      both.back().end = part.end;
    else if (part.size() > 0)
      both.push_back(part);
    if (a->end < b->end)
      ++a;
    else
      ++b;
  }
  return both;
}

}  // namespace dllm
