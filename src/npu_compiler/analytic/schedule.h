#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/lowering/segments.h"
#include "npu_core/assembler/choices.h"

namespace dllm::npu {

struct Device;
class KeptLowering;
struct Mapping;

/// A step in the compiler's schedule (docs/design/npu-analytic.md, "As scheduled").
struct ScheduleAssumptions {
  std::int64_t sequences = 1;        ///< the step's rows are spread evenly over them
  std::int64_t keys = 0;             ///< positions that each row sees
  std::int64_t all_rows = 0;         ///< of the sequence, some of which take their turn; windows begin before the first
  bool logits = true;                ///< logits go to memory; false: reduced on chip, at no cost
  double logit_bytes = 2;            ///< per logit in memory, with its share of a scale
  double gbps = 0;                   ///< achieved bandwidth of the memory
  std::int64_t queue = 16;           ///< instructions waiting for the array (TimingOptions::queue)
  ChoiceAssumption choices = {};     ///< how rows choose experts
  bool phases = true;                ///< whether StepSchedule::phases is wanted
  const Mapping* mapping = nullptr;  ///< of the layout; null: by rule
  bool overlap = true;               ///< as CompileOptions::overlap
  Segment segment = {};              ///< only these operators, with the values that wait before and after them
};

/// Several operators that run as one phase: a product with the work in its shadow, or separate work.
struct ScheduledPhase {
  std::string name;   ///< of the compiled region
  double cycles = 0;  ///< of the front end, counted as the simulator does for a region
  double array = 0;   ///< tiles of the matrix unit
  double ports = 0;   ///< accesses of vector SRAM over its ports
  double memory = 0;  ///< bytes at the achieved bandwidth
};
struct StepSchedule {
  std::vector<ScheduledPhase> phases;
  double total = 0;  ///< cycles
};

/// The time of a step from the machine's parameters: which operators overlap, ports of vector SRAM, latencies of
/// chains, fill and drain, panels that wait for memory. No simulation; one constant is measured (kPanelSwitch). Errors:
/// kUnsupported for operators without a schedule; numbers that contradict each other.
Expected<StepSchedule> schedule_step(const Device& device, const Graph& graph, const ScheduleAssumptions& load);
/// The same; `kept`: of the graph.
Expected<StepSchedule> schedule_step(const Device& device, const Graph& graph, const ScheduleAssumptions& load,
                                     KeptLowering& kept);

}  // namespace dllm::npu
