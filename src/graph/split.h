#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace dllm {

/// How several ranks share a model. No sum crosses a rank, so that every split and number of ranks has the bits of one.
enum class SplitKind : std::uint8_t {
  /// Each rank has some outputs of every product, some heads, and a slice of every expert: a part of the weights and of
  /// K and V. Activations are gathered up to four times a layer.
  kOutputs,
  /// Each rank has all layers' weights and computes a part of the step's rows. New K and V are gathered in each layer.
  kRows,
  /// Each rank has some successive layers. One computes while the others wait; its activations are gathered after it.
  kLayers,
};

/// One rank's part.
struct RankSplit {
  SplitKind kind = SplitKind::kOutputs;
  int rank = 0;
  int ranks = 1;
};

/// Which part of a weight's outputs a rank reads: elements of a vector, rows of a matrix, rows of every matrix of a
/// stack.
struct WeightPart {
  WeightId source = kNoId;
  std::int64_t first = 0;
  std::int64_t count = 0;  ///< 0: this rank does not read the weight

  friend bool operator==(const WeightPart&, const WeightPart&) = default;
};

/// A rank's graph. Its weights are those of the whole graph, with the shapes of their parts, then further parts of some
/// of them. Neither depends on the shape of the step.
struct RankGraph {
  Graph graph;
  std::vector<WeightPart> parts;  ///< by WeightId of `graph`
};

/// Range r of `ranges` successive ones over `units`, as equal as possible.
struct UnitRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return first + count; }
  friend bool operator==(const UnitRange&, const UnitRange&) = default;
};
UnitRange share_of(std::int64_t units, int rank, int ranks);

/// The tokens that a rank's LM head has: whole chunks of `kSplitChunk`, which are reduced one by one in any split.
inline constexpr std::int64_t kSplitChunk = 1024;

/// The graph that a rank runs in place of `graph`, which is valid. All ranks run their op::Gather in the same order.
RankGraph split_graph(const Graph& graph, const RankSplit& split);

/// Bytes that a rank receives in one step of the graph's shape, without the LM head's reduction. `stored_bytes`: of K
/// and V per number in the cache. `code_bytes`: of an activation of which the next product needs only its codes.
std::int64_t gathered_bytes(const RankGraph& own, int rank, int ranks, double stored_bytes, double code_bytes = 4);

}  // namespace dllm
