#pragma once

#include <functional>
#include <span>
#include <vector>

#include "npu_compiler/compiler/step.h"
#include "npu_compiler/workload/workload.h"

namespace dllm::npu {

/// Some of a step's rows, or some operators on them, compiled as a separate step.
struct StepPart {
  StepSpec spec;
  Graph graph;
  Segment segment;   ///< of the graph
  StepProgram step;  ///< its code is in SplitStep::program, at the indices of `operators`

  bool scores() const { return segment.end == graph.ops.size(); }
};

/// A step in one program, part by part.
struct SplitStep {
  Program program;
  std::vector<StepPart> parts;     ///< one if the step fits
  std::vector<RowPart> row_parts;  ///< the rows of each; as many times are weights read
  std::vector<HbmBlob> constants;
};

/// Compiles a step. One that does not fit the device's memories is split into halves by sequences, recursively, and the
/// parts run in sequence. If a single sequence does not fit, its rows are processed in turn, half, a quarter, ... of
/// them, segment by segment (segments()): in between, their activations wait in HBM. Weights are read once per part;
/// tokens of all rows are in INT_MEM from kTokenWords. Errors: those of compile_step() for a single sequence; steps
/// with a reduced head cannot be split, nor a sequence with smoothed K and V, whose factors all rows decide together.
Expected<SplitStep> compile_split(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, const CompileOptions& options = {});

/// The same in given parts, in the order of the sequences; empty: as compile_split() cuts it. Errors: kUsage (a part
/// does not fit, or the parts are not the step).
Expected<SplitStep> compile_parts(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, std::span<const RowPart> parts,
                                  const CompileOptions& options = {});

/// Rows [first, first + count) of a step of one sequence.
StepSpec some_rows(const StepSpec& spec, std::int64_t first, std::int64_t count);

/// Ways to cut a sequence's rows, the fewest parts first; none if rows cannot be cut.
std::vector<std::vector<RowPart>> row_cuts(const Graph& graph, const MachineConfig& machine,
                                           std::span<const Position> positions);

}  // namespace dllm::npu
