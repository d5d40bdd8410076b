#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace dllm::npu {

/// What an operator needs that no program has; empty: nothing. Activations, layer norms, and rows that come from
/// outside or go there are compiled, beyond what a plain transformer has (beyond_plain()).
std::string_view beyond_programs(const dllm::Op& op);

/// Operators [first, end) of a graph that run one after the other on some of a sequence's rows, before they run on the
/// rest: between them, values wait in HBM. `end` 0: the last operator.
struct Segment {
  std::size_t first = 0, end = 0;
  bool operator==(const Segment&) const = default;
};

/// Rows depend on each other only through the keys and values that attention reads. So segments begin at attention
/// operators, when all rows have stored theirs. Block routing joins rows too: those of a block, which is never cut.
std::vector<Segment> segments(const Graph& graph);

/// Values that are made before operator `at` and read by it or later, in the order of their numbers.
std::vector<ValueId> waiting_values(const Graph& graph, std::size_t at);
/// The same from the graph's lifetimes.
std::vector<ValueId> waiting_values(std::span<const Lifetime> lives, std::size_t at);

/// Positions that block routing takes together; 1 without it.
std::int64_t routing_block(const Graph& graph);

}  // namespace dllm::npu
