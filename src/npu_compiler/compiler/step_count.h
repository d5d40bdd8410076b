#pragma once

#include <cstdint>

#include "npu_compiler/compiler/step.h"
#include "npu_compiler/lowering/kept_lowering.h"

// What a step would take of a device, by the decisions of its lowering alone: the same code decides the room of every
// phase, and returns before it emits.

namespace dllm::npu {

/// What a compiled step takes.
struct StepUse {
  std::int64_t vram_rows = 0;  ///< as in StepProgram
  bool overlapped = false;
  std::uint64_t step_bytes = 0;
  std::int64_t layer_rows = 0;  ///< of vector SRAM that the last layer keeps to the end
  /// The largest part in use at once did not grow from the last but one attention to the last: a further layer like the
  /// last one takes `layer_rows` more.
  bool steady = false;
};

/// What compile_step() would take, with its errors, counted phase by phase without emitting an instruction. `kept`: of
/// the graph.
Expected<StepUse> count_step(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                             const CompileOptions& options, KeptLowering& kept);

}  // namespace dllm::npu
