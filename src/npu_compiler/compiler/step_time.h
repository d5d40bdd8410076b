#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/analytic/schedule.h"
#include "npu_compiler/runtime/memory_plan.h"
#include "npu_compiler/runtime/staged_waits.h"
#include "npu_compiler/workload/workload.h"

// How long does a step take? Every verb asks here, and says where the answer is from.

namespace dllm::npu {

/// What a time is.
enum class TimeSource : std::uint8_t {
  kPriced,     ///< the compiled program's schedule in closed form (schedule.h)
  kSimulated,  ///< the compiled program, cycle by cycle (simulated_step.h)
  kBound,      ///< units overlapped operator by operator, which no program need reach (cost_model.h)
};
/// "priced schedule", "simulated", "bound".
std::string_view source_name(TimeSource source);

/// A step's time in cycles of the device's clock, by cause.
struct StepCycles {
  TimeSource source = TimeSource::kBound;
  double device = 0;    ///< the program
  double dispatch = 0;  ///< the host submits operators
  double mapping = 0;   ///< waiting for weights outside the address window, as the planner stages them
  double cycles() const { return device + dispatch + mapping; }
  double seconds(const Device& device) const;
};

nlohmann::ordered_json time_json(const StepCycles& time);

struct CompiledStep;

/// The priced schedule of a step that is compiled, phase by phase, to set beside its simulation.
struct PricedStep {
  StepCycles time;  ///< the program alone
  double gbps = 0;  ///< at which memory is priced
  std::vector<ScheduledPhase> phases{};
};

/// Logits go to memory. `choices`: how rows choose experts. Errors: kUnsupported (an operator without a schedule), and
/// those of the device.
Expected<PricedStep> price(const CompiledStep& compiled, const ChoiceAssumption& choices);

struct StepQuestion {
  StepSize step;
  ChoiceAssumption choices = {};
  bool logits = true;                   ///< go to memory; false: reduced on chip, at no cost
  const Mapping* mapping = nullptr;     ///< null: by rule
  std::span<const RowPart> parts = {};  ///< of the step that are compiled (step_parts())
};

/// Times of one model's steps on any device. Keeps graphs of the model: not thread-safe.
class StepTimes {
 public:
  /// `search_places`: of tensors that an address window does not hold; otherwise they are spread evenly, as
  /// StagedWaits::waiting().
  explicit StepTimes(const ModelShape& shape, bool search_places = true)
      : whole_(shape), schedule_(shape), search_places_(search_places) {}

  /// The priced schedule; the bound for operators that have none. `cost`: of the whole step with its parts. Errors:
  /// those of the planner on a device with an address window: a step that it cannot hold.
  Expected<StepCycles> time(const CostModel& model, const StepQuestion& question, const StepCost& cost);

  /// The step for the planner, with `timed`'s cycles shared among operators in proportion to their costs.
  Expected<MemoryProgram> program(const CostModel& model, const StepQuestion& question, const StepCycles& timed);

 private:
  /// Seconds of waiting for mappings.
  Expected<double> waiting(const CostModel& model, const StepQuestion& question, const StepCycles& timed);
  /// Of the step, with `timed`'s cycles shared among operators.
  Expected<StepCost> shared_cost(const CostModel& model, const StepQuestion& question, const StepCycles& timed);

  GraphTemplate whole_;
  ModelSchedule schedule_;
  bool search_places_;
  std::map<std::vector<double>, StagedWaits> waits_;  ///< by everything about a step but its times
};

}  // namespace dllm::npu
