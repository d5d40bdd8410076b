#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "graph/patterns.h"
#include "npu_compiler/compiler/step.h"
#include "npu_compiler/lowering/phases.h"

// What a step would take of a device, by the decisions of its lowering alone: the same code decides the room of every
// phase, and returns before it emits.

namespace dllm::npu {

/// What a compiled step takes.
struct StepUse {
  std::int64_t vram_rows = 0;  ///< as in StepProgram
  bool overlapped = false;
  std::uint64_t step_bytes = 0;
};

/// A graph whose phases are kept from step to step: its numbers of rows may change, its operators may not.
class KeptPhases {
 public:
  /// Borrows the graph, which must be valid (validate()).
  explicit KeptPhases(const Graph& graph) : patterns_(graph), lives_(lifetimes(graph)) {}
  const std::vector<Phase>& phases(const Graph& graph, const PhaseRules& rules);
  const std::vector<Lifetime>& lives() const { return lives_; }

 private:
  GraphPatterns patterns_;
  std::vector<Lifetime> lives_;
  std::list<std::pair<PhaseRules, std::vector<Phase>>> kept_;  ///< references stay valid
};

/// What compile_step() would take, with its errors, counted phase by phase without emitting an instruction. `kept`: of
/// the graph.
Expected<StepUse> count_step(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                             const CompileOptions& options, KeptPhases& kept);

}  // namespace dllm::npu
