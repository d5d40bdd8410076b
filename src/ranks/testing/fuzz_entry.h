#pragma once

#include <cstddef>
#include <span>
#include <variant>

#include "ranks/command.h"

namespace dllm {

/// A cache of which some rows are known.
class FuzzedCache final : public KvCache {
 public:
  FuzzedCache() : KvCache(64) {
    const PlanRow rows[] = {{0, 1}, {1, 2}, {2, 3}, {7, 4}};
    record(rows);
  }
};

/// Any bytes are a command that can be sent on, or an error; a step that fits a cache reads no row that is not there.
inline void fuzz_rank_command(std::span<const std::byte> bytes) {
  const auto command = decode_command(bytes, 100);
  if (!command) {
    if (command.error().what.empty()) __builtin_trap();
    return;
  }
  if (!decode_command(encode_command(*command), 100)) __builtin_trap();
  const auto* const run = std::get_if<RunSteps>(&*command);
  if (run == nullptr) return;
  const FuzzedCache cache;
  for (const SequenceStep& step : run->steps) {
    if (!fits_cache(step.plan, cache)) continue;
    for (const PlanRow& row : step.plan.rows)
      if (row.position >= cache.capacity()) __builtin_trap();
    for (const PositionRange& range : step.plan.visible)
      for (Position p = range.begin; p < range.end; ++p) {
        bool own = false;
        for (const PlanRow& row : step.plan.rows) own = own || row.position == p;
        if (!own && !cache.holds(p)) __builtin_trap();
      }
  }
}

}  // namespace dllm
