#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/scores.h"
#include "backend/unrolling.h"

namespace dllm::vulkan {

/// A pass that has run before it was asked for.
struct AheadPass {
  std::vector<PlanRow> rows;
  Scores scores;
};

/// The passes of one cache that have run and were not asked for yet. All have the rows of `last` in other tokens, the
/// same visible positions and the same request.
struct PassesAhead {
  SequenceStep last;  ///< the latest one that was asked for: again it would undo the others
  std::deque<AheadPass> passes;

  /// The scores of a step, if it is the next of these passes; nothing: it is another one.
  std::optional<Scores> take(const SequenceStep& step);
};

/// The rows of the pass that follows `plan`: `committed` is a token, or -1, for each scored row.
std::vector<PlanRow> rows_after(const StepPlan& plan, std::span<const PlanRow> rows, Position shift,
                                std::span<const std::int32_t> committed);

}  // namespace dllm::vulkan
