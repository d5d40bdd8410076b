#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/step_plan.h"
#include "base/integers.h"

namespace dllm::npu::accuracy {

/// Visibility of a sequence: first keys of the tiles in which any row sees a key, and per row the keys that it may see,
/// the end of those that a causal plan shows it (`limit`), and the first that a window of attention does (`from`).
struct Sight {
  using Keys = std::vector<std::uint8_t>;  ///< by position: in a visible range
  std::vector<std::int64_t> tiles;
  std::vector<Keys> keys;  ///< of all rows of the plan, then of each shadow row
  std::vector<std::int64_t> limit, from;
  std::size_t plain;  ///< rows that are no shadows

  Sight(const StepPlan& plan, std::int64_t key_tile, std::int64_t window) : plain(plan.rows.size()) {
    std::int64_t end = 0;
    const auto reach = [&](std::span<const PositionRange> ranges) {
      for (const PositionRange& range : ranges) end = std::max<std::int64_t>(end, range.end);
    };
    reach(plan.visible);
    for (const ShadowRow& shadow : plan.shadows) reach(shadow.visible);
    const auto see = [&](std::span<const PositionRange> ranges) {
      Keys& own = keys.emplace_back(static_cast<std::size_t>(round_up(end, key_tile)));
      for (const PositionRange& range : ranges)
        std::fill(own.begin() + range.begin, own.begin() + range.end, std::uint8_t{1});
    };
    see(plan.visible);
    for (const ShadowRow& shadow : plan.shadows) see(shadow.visible);
    std::vector<std::int64_t> furthest(keys.size(), 0);
    for (std::int32_t row = 0; row < plan.row_count(); ++row) {
      const std::int64_t position = plan.row(row).position, block = plan.causal_block;
      const std::int64_t first = block > 0 ? position / block * block : plan.rows.front().position;
      limit.push_back(block > 0 ? first + block : std::numeric_limits<std::int64_t>::max());
      from.push_back(window > 0 ? first - window + 1 : 0);
      std::int64_t& most = furthest[view(static_cast<std::size_t>(row))];
      most = std::max(most, limit.back());
    }
    const auto shown = [&](std::int64_t j) {
      for (std::size_t v = 0; v < keys.size(); ++v)
        if (keys[v][static_cast<std::size_t>(j)] != 0 && j < furthest[v]) return window == 0 || any_row_sees(j);
      return false;
    };
    for (std::int64_t first = 0; first < end; first += key_tile)
      for (std::int64_t j = first; j < first + key_tile; ++j)
        if (shown(j)) {
          tiles.push_back(first);
          break;
        }
  }
  /// Index into `keys`.
  std::size_t view(std::size_t row) const { return row < plain ? 0 : row - plain + 1; }
  bool sees(std::size_t row, std::int64_t j) const {
    return keys[view(row)][static_cast<std::size_t>(j)] != 0 && j < limit[row] && j >= from[row];
  }
  bool any_row_sees(std::int64_t j) const {
    for (std::size_t row = 0; row < limit.size(); ++row)
      if (sees(row, j)) return true;
    return false;
  }
  bool same(std::size_t a, std::size_t b) const {
    return limit[a] == limit[b] && from[a] == from[b] && view(a) == view(b);
  }
};

}  // namespace dllm::npu::accuracy
