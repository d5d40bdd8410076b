#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace dllm {

/// gate = x Wg, up = x Wu and activation(gate) * up, in this order: the first half of a gated linear unit (Shazeer
/// 2020, "GLU Variants Improve Transformer"). Nothing else reads gate and up, so they need not be stored in full.
struct GatedProducts {
  static constexpr std::size_t kOps = 3;
  const op::Linear* gate = nullptr;
  const op::Linear* up = nullptr;
  const op::Glu* unit = nullptr;
};

/// product = x W^T, sum = product + another value, and the norm of the sum if the next operator is one over whole rows.
/// Nothing reads the two terms afterwards, so the sum may overwrite either.
struct ResidualProduct {
  const op::Linear* product = nullptr;
  const op::Add* sum = nullptr;
  const op::RmsNorm* norm = nullptr;  ///< null: none follows

  std::size_t ops() const { return norm != nullptr ? 3 : 2; }
};

/// Finds sequences of operators that a reader of the graph may run as one, by structure alone. Whether to do so is the
/// reader's decision: a bias in the file, or an option against fusion, may prevent it. Borrows the graph, which must be
/// valid (validate()).
class GraphPatterns {
 public:
  explicit GraphPatterns(const Graph& graph);

  /// The end of the run of Linear operators with one input that starts at `first`: q, k and v.
  std::size_t end_of_products(std::size_t first) const;
  /// The pattern that starts at operator `first`, which may be past the end; nullopt: none.
  std::optional<GatedProducts> gated_at(std::size_t first) const;
  std::optional<ResidualProduct> residual_at(std::size_t first) const;
  /// The RoPE that alone reads the result of the Linear operator `product`; nullopt: none.
  std::optional<std::size_t> rope_of(std::size_t product) const;

 private:
  template <class O>
  const O* at(std::size_t i) const {
    return i < graph_.ops.size() ? std::get_if<O>(&graph_.ops[i]) : nullptr;
  }
  /// Whether no operator after `op` reads the value.
  bool dead_after(ValueId id, std::size_t op) const {
    return lives_[static_cast<std::size_t>(id)].last <= static_cast<std::int32_t>(op);
  }

  const Graph& graph_;
  std::vector<Lifetime> lives_;
};

}  // namespace dllm
