#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "backend/step_plan.h"

namespace dllm::test {

/// Seeds of drawn plans: one, as tests are short, or the ten from the number in DLLM_PLAN_SEED on.
inline std::vector<std::uint64_t> plan_seeds() {
  const char* const first = std::getenv("DLLM_PLAN_SEED");
  std::vector<std::uint64_t> seeds{1};
  if (first != nullptr) {
    seeds.clear();
    for (std::uint64_t i = 0; i < 10; ++i) seeds.push_back(std::stoull(first) + i);
  }
  return seeds;
}

/// Plans over positions [0, length) of a cache that holds all of them, with tokens below 71.
class DrawnPlans {
 public:
  DrawnPlans(std::uint64_t seed, Position length, std::int32_t causal_block)
      : random_(seed), length_(length), block_(causal_block) {}

  /// Some rows, of which some are scored, that see some positions.
  StepPlan plan() {
    StepPlan result;
    const int share = below(9) + 1;
    for (Position p = 0; p < length_; ++p)
      if (below(10) < share) result.rows.push_back({p, below(71)});
    if (result.rows.empty()) result.rows.push_back({below(length_), below(71)});
    result.visible = ranges(result.rows.front().position);
    result.causal_block = block_;
    for (std::size_t i = 0; i < result.rows.size(); ++i)
      if (below(3) == 0) result.scored.push_back(static_cast<std::int32_t>(i));
    if (result.scored.empty()) result.scored.push_back(0);
    return result;
  }

  /// A shadow row that sees positions of its own.
  ShadowRow shadow(Position at) { return {{at, below(71)}, ranges(at)}; }

  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }

 private:
  /// `seen` is among them, so that under every kind of mask some position is.
  std::vector<PositionRange> ranges(Position seen) {
    const int share = below(10) + 1;
    std::vector<PositionRange> result;
    for (Position p = 0; p < length_; ++p) {
      if (p != seen && p != 0 && below(10) >= share) continue;
      if (!result.empty() && result.back().end == p)
        ++result.back().end;
      else
        result.push_back({p, p + 1});
    }
    return result;
  }

  std::mt19937_64 random_;
  Position length_;
  std::int32_t block_;
};

}  // namespace dllm::test
