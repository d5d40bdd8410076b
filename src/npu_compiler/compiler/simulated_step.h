#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"
#include "npu_compiler/workload/workload.h"

namespace dllm::npu {

struct Device;

/// A step compiled and run on the cycle-accurate model.
struct SimulatedStep {
  /// By operator of its graph. The front end's time in an operator counts for it, so that they sum to the whole, as
  /// units overlap across operators.
  std::vector<double> cycles;
  double other = 0;  ///< of no operator: constants, the end
  double total() const;
};

/// Simulates a step, or reads its report from `directory` (memoised_timing(); "": none). `modelled`: by operator, how
/// those that are lowered as one share their time. Logits go to memory. Errors: those of compile_split() and
/// simulate(): kUsage for steps that do not fit the device's memories, kUnsupported for formats that the machine does
/// not have.
Expected<SimulatedStep> simulate_step(const Device& device, const std::function<Graph(StepShape)>& graph,
                                      const StepSize& step, const std::vector<double>& modelled,
                                      const std::string& directory);

}  // namespace dllm::npu
