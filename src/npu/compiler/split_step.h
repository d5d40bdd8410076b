#pragma once

#include <functional>
#include <vector>

#include "npu/compiler/step.h"

namespace dllm::npu {

/// Some of a step's sequences, compiled as a step of their own.
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

/// Compiles a step; one that does not fit into the device's memories is split into halves by sequences, recursively,
/// which run one after the other. Weights are read once per part; tokens of all rows are in INT_MEM from kTokenWords.
/// Errors: those of compile_step() for a single sequence, whose rows need each other's keys in every layer; and steps
/// with a reduced head are not split.
Expected<SplitStep> compile_split(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, const CompileOptions& options = {});

}  // namespace dllm::npu
