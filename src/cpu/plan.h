#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace dllm::cpu {

/// A graph with a place in the arena for each value. The graph is built for a capacity of rows; a step of any smaller
/// shape runs in the same places, so the steps of a generation (whose scored rows shrink) share one plan.
struct ExecutionPlan {
  Graph graph;
  std::vector<std::int64_t> offset;  ///< by value: floats from the start of the arena, multiples of 16 (64 bytes)
  std::vector<bool> scored;          ///< by value: it holds the scored rows only
  std::int64_t arena_floats = 0;

  bool fits(StepShape shape) const { return shape.rows <= graph.shape.rows && shape.scored <= graph.shape.scored; }
};

/// Places values by their lifetimes: two values share memory only if no operator sees both alive. Largest first, each
/// into the smallest gap that holds it (interval packing is NP-hard; this greedy rule is within some per cent of the
/// peak of live bytes on transformer graphs). An elementwise operator takes over the memory of an operand that dies
/// with it.
ExecutionPlan make_plan(Graph graph);

}  // namespace dllm::cpu
