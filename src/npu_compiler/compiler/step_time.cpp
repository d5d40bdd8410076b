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
                                                   .all_rows = compiled.size.rows,
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
  DLLM_TRY(const double waits, waiting(model, question, timed));
  // Hidden transfers leave rounding errors of the sums.
  const double mapping = waits * device.clock.ghz * 1e9;
  timed.mapping = mapping > 1e-9 * (timed.cycles() + mapping) ? mapping : 0;
  return timed;
}

namespace {

CostAssumptions step_load(const StepQuestion& question) {
  return {.sequences = question.step.sequences,
          .keys = question.step.keys,
          .fused_head = !question.logits,
          .choices = question.choices,
          .parts = static_cast<std::int64_t>(question.parts.size())};
}

/// What sizes and limits of a step's program depend on, for one model.
std::vector<double> memory_key(const Device& device, const MemoryLimits& limits, const StepSize& step) {
  std::vector<double> key = {device.numerics.weight_bytes, device.numerics.kv_bytes, limits.map_us,
                             limits.map_us_per_page};
  for (const std::int64_t n :
       {device.array.blen, limits.window_bytes, limits.staging_bytes, limits.page_bytes, limits.alignment,
        limits.mapping_bytes, limits.mappings, step.sequences, step.rows, step.keys, step.scored_rows()})
    key.push_back(static_cast<double>(n));
  return key;
}

}  // namespace

Expected<StepCost> StepTimes::shared_cost(const CostModel& model, const StepQuestion& question,
                                          const StepCycles& timed) {
  DLLM_TRY(StepCost cost, model.evaluate(whole_.with(question.step.shape()), step_load(question)));
  double work = 0, host = 0;
  for (const OperatorCost& c : cost.operators) work += std::max({c.matrix, c.vector, c.memory}), host += c.host;
  for (OperatorCost& c : cost.operators)
    c.cycles = std::max({c.matrix, c.vector, c.memory}) * timed.device / work +
               (host > 0 ? c.host * timed.dispatch / host : 0);
  return cost;
}

Expected<double> StepTimes::waiting(const CostModel& model, const StepQuestion& question, const StepCycles& timed) {
  constexpr std::size_t kMostKept = 64;
  const Device& device = model.device();
  DLLM_TRY(const StepCost cost, shared_cost(model, question, timed));
  DLLM_TRY(const MemoryLimits limits, memory_limits(device));
  std::vector<double> key = memory_key(device, limits, question.step);
  auto found = waits_.find(key);
  if (found == waits_.end()) {
    if (waits_.size() >= kMostKept) waits_.clear();
    DLLM_TRY(StagedWaits made,
             StagedWaits::create(step_program(whole_.with(question.step.shape()), device, step_load(question), cost),
                                 limits));
    found = waits_.emplace(std::move(key), std::move(made)).first;
  }
  std::vector<double> seconds;
  for (const OperatorCost& c : cost.operators) seconds.push_back(c.cycles / (device.clock.ghz * 1e9));
  return found->second.waiting(seconds, search_places_);
}

Expected<MemoryProgram> StepTimes::program(const CostModel& model, const StepQuestion& question,
                                           const StepCycles& timed) {
  DLLM_TRY(const StepCost cost, shared_cost(model, question, timed));
  return step_program(whole_.with(question.step.shape()), model.device(), step_load(question), cost);
}

}  // namespace dllm::npu
