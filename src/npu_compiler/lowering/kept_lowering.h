#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/patterns.h"
#include "npu_compiler/lowering/lanes.h"
#include "npu_compiler/lowering/phases.h"

namespace dllm::npu {

/// What lowering decides of a graph whatever its numbers of rows, which may change from step to step; its operators may
/// not. Borrows the graph, which must be valid (validate()). References that it gives stay valid. Not thread-safe.
class KeptLowering {
 public:
  explicit KeptLowering(const Graph& graph) : graph_(graph), patterns_(graph), lives_(lifetimes(graph)) {}
  KeptLowering(const KeptLowering&) = delete;
  KeptLowering& operator=(const KeptLowering&) = delete;

  const std::vector<Phase>& phases(const PhaseRules& rules);
  /// As assign_lanes().
  const std::vector<LaneMap>& lanes(std::int64_t mlen, std::int64_t hlen);
  const std::vector<Lifetime>& lives() const { return lives_; }

 private:
  const Graph& graph_;
  GraphPatterns patterns_;
  std::vector<Lifetime> lives_;
  std::list<std::pair<PhaseRules, std::vector<Phase>>> phases_;
  std::list<std::pair<std::pair<std::int64_t, std::int64_t>, std::vector<LaneMap>>> lanes_;
};

}  // namespace dllm::npu
