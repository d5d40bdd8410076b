#include "npu_compiler/compiler/attention_plan.h"

#include <algorithm>

#include "base/to_size.h"

namespace dllm::npu {

bool sees_alike(const SequenceSpec& a, const SequenceSpec& b) {
  return a.causal_block == b.causal_block && a.first_of_all == b.first_of_all && a.visible == b.visible &&
         a.positions == b.positions;
}

SequenceTiles plan_tiles(const SequenceSpec& sequence, std::int64_t hlen, std::int64_t window) {
  SequenceTiles plan;
  std::int64_t end = 0;
  for (const PositionRange& range : sequence.visible) end = std::max<std::int64_t>(end, range.end);
  const std::size_t rows = sequence.positions.size();
  // Rows of one causal block see the same keys: only the first of each is examined.
  const auto same_as_before = [&](std::size_t row) {
    return row > 0 && (sequence.causal_block == 0 || sequence.positions[row] / sequence.causal_block ==
                                                         sequence.positions[row - 1] / sequence.causal_block);
  };
  for (std::size_t row = 0; row < rows; ++row) {
    if (same_as_before(row))
      ++plan.runs.back().count;
    else
      plan.runs.push_back({static_cast<std::int64_t>(row), 1, {}});
  }
  for (std::int64_t tile = 0; tile * hlen < end; ++tile) {
    const auto within = [&](const PositionRange& range) {
      return range.begin <= tile * hlen && (tile + 1) * hlen <= range.end &&
             (window == 0 || tile * hlen > sequence.window_start(0) - window);
    };
    if (sequence.causal_block == 0 && std::ranges::any_of(sequence.visible, within)) {
      plan.tiles.push_back(tile);
      for (RowRun& run : plan.runs) run.patterns.push_back(kAllVisible);
      continue;
    }
    std::vector<std::int32_t> of_run;
    bool any = false;
    for (const RowRun& run : plan.runs) {
      std::vector<bool> pattern(to_size(hlen));
      for (std::int64_t j = 0; j < hlen; ++j)
        pattern[to_size(j)] = sequence.sees(to_size(run.first), tile * hlen + j, window);
      any = any || std::ranges::any_of(pattern, [](bool b) { return b; });
      if (std::ranges::all_of(pattern, [](bool b) { return b; })) {
        of_run.push_back(kAllVisible);
        continue;
      }
      const auto found = std::ranges::find(plan.patterns, pattern);
      of_run.push_back(static_cast<std::int32_t>(found - plan.patterns.begin()));
      if (found == plan.patterns.end()) plan.patterns.push_back(std::move(pattern));
    }
    if (!any) continue;
    plan.tiles.push_back(tile);
    for (std::size_t r = 0; r < plan.runs.size(); ++r) plan.runs[r].patterns.push_back(of_run[r]);
  }
  return plan;
}

std::vector<LaneGroup> plan_lanes(const LaneMap& q, const LaneMap& kv, const MachineConfig& machine) {
  const std::int64_t heads = machine.heads();
  const std::int64_t groups = round_up(ceil_div(q.used(), machine.vlen) * machine.vlen, machine.mlen) / machine.mlen;
  std::vector<LaneGroup> result;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first_kv = g * heads / q.slots;
    // Groups without heads multiply zeros by arbitrary keys.
    const std::int64_t lane = first_kv < kv.slot_count() ? first_kv * kv.hlen : 0;
    result.push_back({lane / machine.mlen, lane % machine.mlen, std::min(q.slots, heads)});
  }
  return result;
}

}  // namespace dllm::npu
