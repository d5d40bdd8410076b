#pragma once

#include <functional>
#include <vector>

#include "npu_compiler/compiler/step.h"

namespace dllm::npu {

/// Some of a step's sequences, compiled as a separate step.
struct StepPart {
  StepSpec spec;
  Graph graph;
  StepProgram step;  ///< its code is in SplitStep::program, at the indices of `operators`
};

/// A step in one program, part by part.
struct SplitStep {
  Program program;
  std::vector<StepPart> parts;  ///< one if the step fits
  std::vector<HbmBlob> constants;
};

/// Compiles a step. One that does not fit the device's memories is split into halves by sequences, recursively, and the
/// parts run in sequence. Weights are read once per part; tokens of all rows are in INT_MEM from kTokenWords. Errors:
/// those of compile_step() for a single sequence, whose rows need each other's keys in every layer; steps with a
/// reduced head cannot be split.
Expected<SplitStep> compile_split(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, const CompileOptions& options = {});

}  // namespace dllm::npu
