#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace dllm {

/// Consecutive operators [first, last) that run as one parallel loop. The kernels are the same as in separate loops,
/// and so are the bits; a step has a quarter of the loops, and an operator finds its predecessor's output in the cache.
struct OpRun {
  enum class Kind : std::uint8_t {
    kSingle,  ///< one operator
    /// Operators that compute each row from the same row of their inputs (norms, RoPE, stores to the cache, SwiGLU,
    /// residual additions, scaling, embedding): all of them are applied to one row before the next.
    kRows,
    kProducts,  ///< Linear operators over one input: q, k and v
    kGated,     ///< GatedProducts, one pair of panels at a time
  };

  std::size_t first = 0;
  std::size_t last = 0;
  Kind kind = Kind::kSingle;
  // For kRows, so that a step need not query the operators, which return vectors:
  std::int64_t cost = 0;  ///< of a row: numbers read and written
  ValueId sized = kNoId;  ///< a value with the run's number of rows
  ValueId made = kNoId;   ///< the last operator's output, if it is a value
};

/// A graph with a place in the arena for each value. The graph is built for a capacity of rows; a step of any smaller
/// shape uses the same places, so the steps of a generation (whose scored rows decrease) share one plan.
struct ExecutionPlan {
  Graph graph;
  std::vector<std::int64_t> offset;  ///< by value: floats from the start of the arena, multiples of 16 (64 bytes)
  std::vector<OpRun> runs;
  std::vector<bool> scored;    ///< by value: it holds the scored rows only
  std::vector<bool> own_rows;  ///< by value: only this rank's rows are computed (Graph::own_rows)
  std::int64_t arena_floats = 0;

  bool fits(StepShape shape) const { return shape.rows <= graph.shape.rows && shape.scored <= graph.shape.scored; }
};

/// Groups the operators into runs and places values by their lifetimes: two values share memory only if no run sees
/// both alive (within a run rows are in different states). Largest first, each into the smallest gap that holds it
/// (interval packing is NP-hard; this greedy rule is within a few per cent of the peak of live bytes on transformer
/// graphs). An elementwise operator may overwrite an operand that is not used afterwards.
ExecutionPlan make_plan(Graph graph);

}  // namespace dllm
