#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "graph/graph.h"
#include "numerics/hadamard.h"

namespace dllm::cpu {

/// The transforms of a graph, by order.
class Hadamards {
 public:
  Hadamards() = default;
  /// `graph` is valid, so all of its orders are known.
  explicit Hadamards(const Graph& graph) {
    for (const Op& any : graph.ops) {
      if (const auto* o = std::get_if<op::Hadamard>(&any)) add(o->order);
      if (const auto* o = std::get_if<op::Experts>(&any); o != nullptr && o->hadamard != 0) add(o->hadamard);
    }
  }

  /// Each order once.
  const std::vector<Hadamard>& all() const { return all_; }
  /// Borrows from this; `order` 0: no transform.
  HadamardArgs args(std::int32_t order) const {
    const auto found = std::ranges::find(all_, order, &Hadamard::order);
    if (found == all_.end()) return {};
    return {found->order(), found->core(), found->core_signs().data(), found->scale()};
  }

 private:
  void add(std::int32_t order) {
    if (std::ranges::find(all_, order, &Hadamard::order) == all_.end()) all_.push_back(*Hadamard::online(order));
  }

  std::vector<Hadamard> all_;
};

}  // namespace dllm::cpu
