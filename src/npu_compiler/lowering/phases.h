#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/patterns.h"
#include "npu_compiler/lowering/segments.h"

namespace dllm::npu {

/// Operators that run as one. The compiler emits a step's phases in their order, and the analytical schedule prices
/// them (analytic/schedule.h).
struct Phase {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t first = 0, count = 1;         ///< operators
  std::optional<GatedProducts> gated = {};  ///< at most one of the two
  std::optional<ResidualProduct> residual = {};
  /// Of a product: the RoPE of its result, if that runs in the shadow of the products that follow.
  std::size_t streamed = kNone;
  std::size_t stored_by = kNone;  ///< the StoreKv whose keys are stored as they leave `streamed`
  bool in_stream = false;         ///< this is such a RoPE: nothing is left to do
  /// Of a layer's new keys and values: the keys are stored as they leave such a RoPE.
  bool keys_stored = false;
};

/// What phases depend on beside the graph.
struct PhaseRules {
  Segment segment = {};
  std::int64_t hlen = 0;          ///< lanes of a head's slot
  bool fuse = true;               ///< gate, up and their unit run as one
  bool overlap = true;            ///< sums, norms and RoPE run in the shadow of products
  bool smooth = false;            ///< keys or values are smoothed before they are stored
  std::vector<bool> absent = {};  ///< by weight: biases that the model does not have; empty: by WeightDecl::required
  bool operator==(const PhaseRules&) const = default;
};

std::vector<Phase> phases(const Graph& graph, const GraphPatterns& patterns, const PhaseRules& rules);

/// The value that a phase's time is attributed to, or its operator: "blk.3.attn_q". A product with its sum and norm has
/// the product's name, because its time is spent there.
std::string phase_name(const Graph& graph, const Phase& phase);

/// A matrix whose panels stream through matrix SRAM, or two of one shape that alternate, in the order of their use.
struct StreamedMatrix {
  std::size_t op = 0;
  WeightId weight = kNoId;  ///< none: a layer of experts, whose first panel is known only at run time
  WeightId second = kNoId;
};
std::vector<StreamedMatrix> streamed_matrices(const Graph& graph, const std::vector<Phase>& phases);

}  // namespace dllm::npu
