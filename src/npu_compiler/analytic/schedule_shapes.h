#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/integers.h"
#include "graph/graph.h"
#include "graph/patterns.h"
#include "npu_compiler/analytic/schedule_experts.h"
#include "npu_core/device/array_keys.h"

namespace dllm::npu {

struct Device;

/// A matrix whose panels stream through matrix SRAM, or two of one shape that alternate.
struct StreamedMatrix {
  std::int64_t n = 0, k = 0;
  std::int64_t count = 1;  ///< matrices: 1 or 2
};

/// The compiler's layout of a graph: lanes of its values, and operators that are lowered as one. Borrows both
/// arguments.
class ScheduleShapes {
 public:
  ScheduleShapes(const Graph& graph, const ArrayKeys& array);

  const Value& value(ValueId id) const { return graph_.value(id); }
  /// For values made of heads: a slot of HLEN lanes per head, a power of two of slots per KV head.
  std::int64_t lanes(ValueId id) const {
    const std::int64_t found = lanes_[static_cast<std::size_t>(id)];
    return found == 0 ? value(id).width : found;
  }
  double slabs(ValueId id) const { return static_cast<double>(ceil_div(lanes(id), array_.vlen)); }
  bool wide(std::int64_t head_dim) const { return head_dim > array_.hlen; }
  /// Index of the RoPE that computes the value; the number of operators: none does.
  std::size_t rope_into(ValueId id) const;
  /// Tables of factors that RopePlace has.
  std::int64_t rope_tables(const op::Rope& o) const;
  /// Slabs of a row that rotate: of a head of several slabs only the first one.
  double turned_slabs(const op::Rope& o) const;

  /// The operator, if it is an O.
  template <class O>
  const O* at(std::size_t i) const {
    return i < graph_.ops.size() ? std::get_if<O>(&graph_.ops[i]) : nullptr;
  }
  /// Whether gate, up and their unit begin at this operator.
  bool gated(std::size_t i) const;
  /// How many operators run as one from this one on. `overlap`: additions and norms run in a product's shadow.
  std::size_t group_at(std::size_t i, bool overlap) const;
  std::string name_of(const Op& any) const;
  /// Of the operators [first, end), in the order of their use. nullopt: a layer of experts, where the stream stops.
  std::vector<std::optional<StreamedMatrix>> matrices(std::size_t first, std::size_t end) const;
  /// The layer of experts that reads a route's choices; nullptr: none.
  const op::Experts* reader_of(const op::Route& route) const;
  /// What these say about a layer of experts.
  ExpertShape experts(const op::Route& route, const op::Experts& o) const;
  /// Bytes of the values that wait in HBM before operator `at`.
  double waiting_bytes(std::size_t at) const;
  /// Bytes that are loaded before operators [first, end): gains, and the rows of RoPE.
  double constant_bytes(std::size_t first, std::size_t end) const;

 private:
  /// A product with a bias runs alone: the bias is added before anything else reads the result.
  bool biased(const op::Linear& o) const { return o.bias != kNoId && graph_.weight(o.bias).required; }
  void heads_of(ValueId id, std::int64_t lanes);

  const Graph& graph_;
  const ArrayKeys& array_;
  const GraphPatterns patterns_;
  std::vector<std::int64_t> lanes_;  ///< by value; 0: its width
};

}  // namespace dllm::npu
