#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"

namespace dllm {

/// What a cut would cost in front of each operator.
struct CutCosts {
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();  ///< there is no cut

  std::size_t tail = 0;               ///< the first operator on scored rows; the number of operators: there is none
  std::vector<std::int64_t> numbers;  ///< per row that are alive, in front of operators [0, tail)
};

/// A graph is not cut between the writer and the reader of a layer's cache, nor at its ends.
CutCosts cut_costs(const Graph& graph);

/// What the operators [begin, end) compute and operators from `end` on read, ascending.
std::vector<ValueId> handed_over(const Graph& graph, std::size_t begin, std::size_t end);

/// The layers that have attention, ascending.
std::vector<std::int32_t> layers_of(const Graph& graph);

/// A graph in two parts, each with the weights and values of the whole. `front` hands the rows between them out
/// (op::HiddenOut), and `back` takes them in (op::HiddenIn).
struct GraphCut {
  Graph front, back;
};

/// `last`: how many of the layers `back` has, with all that comes after them; at least 1, and not all. Where the cut is
/// does not depend on the shape of the step. Errors: kUnsupported (the graph hands out hidden states itself, or has no
/// such place).
Expected<GraphCut> cut_graph(const Graph& graph, std::int64_t last);

}  // namespace dllm
