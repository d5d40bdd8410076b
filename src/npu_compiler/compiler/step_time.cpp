#include "npu_compiler/compiler/step_time.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/runtime/step_memory.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

std::string_view source_name(TimeSource source) {
  constexpr std::string_view kNames[] = {"priced schedule", "simulated", "bound"};
  return kNames[static_cast<std::size_t>(source)];
}

double StepCycles::seconds(const Device& of) const { return cycles() / (of.clock.ghz * 1e9); }

nlohmann::ordered_json time_json(const StepCycles& time) {
  return {{"source", source_name(time.source)},
          {"cycles", time.cycles()},
          {"device_cycles", time.device},
          {"dispatch_cycles", time.dispatch},
          {"mapping_cycles", time.mapping}};
}

Expected<PricedStep> price(const CompiledStep& compiled, const ChoiceAssumption& choices) {
  PricedStep priced{.time = {.source = TimeSource::kPriced}};
  DLLM_TRY(priced.gbps, achieved_bandwidth(compiled.device));
  for (const StepPart& part : compiled.step.parts) {
    DLLM_TRY(StepSchedule schedule, schedule_step(compiled.device, part.graph,
                                                  {.sequences = static_cast<std::int64_t>(part.spec.sequences.size()),
                                                   .keys = compiled.size.keys,
                                                   .logits = true,
                                                   .logit_bytes = compiled.device.numerics.logit_bytes,
                                                   .gbps = priced.gbps,
                                                   .queue = compiled.device.issue.queue,
                                                   .choices = choices,
                                                   .mapping = &compiled.layout.mapping,
                                                   .overlap = part.step.overlapped,
                                                   .segment = part.segment}));
    priced.time.device += schedule.total;
    for (ScheduledPhase& phase : schedule.phases) priced.phases.push_back(std::move(phase));
  }
  return priced;
}

Expected<StepCycles> StepTimes::time(const CostModel& model, const StepQuestion& question, const StepCost& cost) {
  const Device& device = model.device();
  const double parts = std::max(1.0, static_cast<double>(question.parts.size()));
  StepCycles timed{.source = TimeSource::kPriced, .dispatch = parts * cost.total.host};
  const Expected<double> cycles = schedule_.cycles(device, question.step,
                                                   {.logits = question.logits,
                                                    .logit_bytes = device.numerics.logit_bytes,
                                                    .gbps = model.achieved_gbps(),
                                                    .queue = device.issue.queue,
                                                    .choices = question.choices,
                                                    .mapping = question.mapping},
                                                   question.parts);
  if (cycles) {
    timed.device = *cycles;
  } else if (cycles.error().code == ErrorCode::kUnsupported) {
    timed.source = TimeSource::kBound;
    timed.device = cost.overlapped - cost.total.host;
  } else {
    return cycles.error();
  }
  if (device.window.bytes == 0) return timed;
  DLLM_TRY(const MemoryProgram planned, program(model, question, timed));
  DLLM_TRY(const MemoryLimits limits, memory_limits(device));
  DLLM_TRY(const MemoryPlan plan, plan_memory(planned, limits));
  // Hidden transfers leave rounding errors of the sums.
  const double waits = plan.waiting_seconds > 1e-9 * plan.seconds ? plan.waiting_seconds : 0;
  timed.mapping = waits * device.clock.ghz * 1e9;
  return timed;
}

Expected<MemoryProgram> StepTimes::program(const CostModel& model, const StepQuestion& question,
                                           const StepCycles& timed) {
  const CostAssumptions load{.sequences = question.step.sequences,
                             .keys = question.step.keys,
                             .fused_head = !question.logits,
                             .choices = question.choices,
                             .parts = static_cast<std::int64_t>(question.parts.size())};
  const Graph& graph = whole_.with(question.step.shape());
  DLLM_TRY(StepCost cost, model.evaluate(graph, load));
  double work = 0, host = 0;
  for (const OperatorCost& c : cost.operators) work += std::max({c.matrix, c.vector, c.memory}), host += c.host;
  for (OperatorCost& c : cost.operators)
    c.cycles = std::max({c.matrix, c.vector, c.memory}) * timed.device / work +
               (host > 0 ? c.host * timed.dispatch / host : 0);
  return step_program(graph, model.device(), load, cost);
}

}  // namespace dllm::npu
