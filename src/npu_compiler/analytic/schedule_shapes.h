#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/integers.h"
#include "base/to_size.h"
#include "graph/graph.h"
#include "npu_compiler/analytic/schedule_experts.h"
#include "npu_compiler/lowering/kept_lowering.h"
#include "npu_core/device/array_keys.h"

namespace dllm::npu {

struct Device;

/// What decides a step's phases.
PhaseRules schedule_rules(const Device& device, const Segment& segment, bool overlap);

/// A graph on an array: lanes of its values, and sizes that follow from them. Borrows all arguments.
class ScheduleShapes {
 public:
  ScheduleShapes(const Graph& graph, const ArrayKeys& array, KeptLowering& kept)
      : graph_(graph), array_(array), lanes_(kept.lanes(array.mlen, array.hlen)), lives_(kept.lives()) {}

  const Value& value(ValueId id) const { return graph_.value(id); }
  std::int64_t lanes(ValueId id) const { return lanes_[to_size(id)].used(); }
  double slabs(ValueId id) const { return static_cast<double>(ceil_div(lanes(id), array_.vlen)); }
  bool wide(std::int64_t head_dim) const { return head_dim > array_.hlen; }
  RopeForm rope(const op::Rope& o) const { return rope_form(o, array_.hlen, array_.vlen); }

  /// The operator, if it is an O.
  template <class O>
  const O* at(std::size_t i) const {
    return i < graph_.ops.size() ? std::get_if<O>(&graph_.ops[i]) : nullptr;
  }
  /// The layer of experts that reads a route's choices; nullptr: none.
  const op::Experts* reader_of(const op::Route& route) const;
  /// What these say about a layer of experts.
  ExpertShape experts(const op::Route& route, const op::Experts& o) const;
  /// Bytes of the values that wait in HBM before operator `at`.
  double waiting_bytes(std::size_t at) const;
  /// Bytes that are loaded before operators [first, end): gains, and the rows of RoPE.
  double constant_bytes(std::size_t first, std::size_t end) const;

 private:
  const Graph& graph_;
  const ArrayKeys& array_;
  const std::vector<LaneMap>& lanes_;  ///< by value
  const std::vector<Lifetime>& lives_;
};

}  // namespace dllm::npu
