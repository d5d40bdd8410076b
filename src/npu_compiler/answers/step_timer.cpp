#include "npu_compiler/answers/step_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/integers.h"
#include "base/try.h"
#include "base/virtual_parts.h"
#include "npu_compiler/analytic/operator_work.h"
#include "npu_compiler/answers/answer_energy.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_compiler/answers/paging.h"
#include "npu_compiler/compiler/simulated_step.h"
#include "npu_compiler/runtime/step_memory.h"
#include "npu_core/device/device.h"
#include "npu_core/device/energy.h"

namespace dllm::npu {
namespace {

/// Rows of a sequence in the step for which the planner hides transfers: an ordinary block.
constexpr std::int64_t kUsualRows = 32;

void add_energy(VirtualEnergy& sum, const StepEnergy& device) {
  sum.compute += device.matrix + device.vector + device.sram + device.convert + device.instruction;
  sum.dram += device.dram_core + device.dram_io + device.dram_background;
  sum.standby += device.phy + device.fixed;
}

std::int64_t vocabulary(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) return graph.weight(head->weight).shape.back();
  return 0;
}

}  // namespace

StepTime& StepTime::operator+=(const StepTime& other) {
  VirtualParts::operator+=(other);
  energy += other.energy;
  return *this;
}

StepTime StepTime::scaled(double factor) const {
  StepTime result = *this;
  for (const auto& [name, part] : kVirtualParts) result.*part *= factor;
  for (const auto& [name, part] : kVirtualEnergy) result.energy.*part *= factor;
  return result;
}

/// A step on the device, without waiting for memory.
struct StepTimer::DeviceStep {
  Graph graph;
  CostAssumptions load;
  StepCost cost;
  StepTime time;
  OperatorCost sum;
  HostWork host;
  std::vector<Stretch> stretches{};
  bool simulated = false;

  void add_host(const HostWork& more) {
    host += more;
    stretches.push_back({more.seconds, more.bytes, Stretch::Kind::kHost});
  }

  /// For the planner. What no row uses is not moved.
  MemoryProgram program(const Device& device) const {
    MemoryProgram program = step_program(graph, device, load, cost);
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      if (operator_rows(graph, graph.ops[i]) == 0) program.ops[i] = {program.ops[i].name, 0, {}, {}};
    // Values of steps without scored rows have no bytes, and are in no operator any more.
    for (MemoryTensor& tensor : program.tensors) tensor.bytes = std::max<std::int64_t>(tensor.bytes, 1);
    return program;
  }
};

StepTimer::StepTimer(const Device& device, GraphFactory graph, const StepTotals& most, const TimerOptions& options)
    : device_(std::make_unique<Device>(device)), graph_(std::move(graph)), most_(most), options_(options) {}
StepTimer::StepTimer(StepTimer&&) noexcept = default;
StepTimer::~StepTimer() = default;

Expected<StepTimer> StepTimer::create(const Device& device, GraphFactory graph, const StepTotals& most,
                                      const TimerOptions& options) {
  StepTimer timer(device, std::move(graph), most, options);
  if (options.processor == StepProcessor::kHost && device.host.cores == 0)
    return Error{ErrorCode::kUnsupported, "the profile describes no host processor", "device " + device.name,
                 "choose a phone such as mobile-sm8750, or give host.cores and its rates with --set"};
  if (most.sequences < 1 || most.rows < most.sequences || most.keys < 1)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} rows of {} sequences that see {} keys", most.rows, most.sequences, most.keys), "", ""};
  if (options.processor == StepProcessor::kHost && options.simulate)
    return Error{ErrorCode::kUsage, "the host's steps are not simulated: a roofline gives their time", "", ""};
  if (options.processor == StepProcessor::kHost) return timer;
  DLLM_CHECK_OK(check_modelled(device));
  DLLM_TRY(const double gbps, achieved_bandwidth(device));
  DLLM_TRY(CostModel model, CostModel::create(*timer.device_, gbps));
  timer.model_.emplace(std::move(model));
  if (device.window.bytes > 0) {
    DLLM_TRY(timer.limits_, memory_limits(device));
    if (options.planner) DLLM_CHECK_OK(timer.place());
  }
  return timer;
}

StepTotals StepTimer::bucket(const StepTotals& work) const {
  StepTotals padded = work;
  if (!options_.skip_logits) padded.scored = padded.rows;
  if (options_.processor == StepProcessor::kHost) return padded;
  const std::int64_t blen = device_->array.blen;
  padded.rows = round_up(ceil_div(padded.rows, padded.sequences), blen) * padded.sequences;
  padded.scored = std::min(padded.rows, round_up(padded.scored, blen));
  padded.keys = round_up(padded.keys, blen);
  return padded;
}

/// Puts simulated cycles in the place of the operators' limiting units. Returns false for a step that cannot be
/// compiled. Errors: those of the simulation.
Expected<bool> StepTimer::use_simulated(DeviceStep& step, const StepTotals& work) {
  std::vector<double> modelled;
  for (const OperatorCost& c : step.cost.operators) modelled.push_back(std::max({c.matrix, c.vector, c.memory}));
  const std::int64_t rows = work.rows / work.sequences;
  const auto simulated = simulate_step(*device_, graph_,
                                       {.sequences = work.sequences,
                                        .rows = rows,
                                        .keys = std::max(work.keys, rows),
                                        .scored = std::min(rows, ceil_div(work.scored, work.sequences))},
                                       modelled, options_.timing_cache);
  if (!simulated) {
    const ErrorCode code = simulated.error().code;
    if (code != ErrorCode::kUsage && code != ErrorCode::kUnsupported && code != ErrorCode::kResource)
      return simulated.error();
    if (unsimulated_.empty())
      unsimulated_ = fmt::format("{} rows that see {} keys: {}", work.rows, work.keys, simulated.error().what);
    return false;
  }
  for (std::size_t i = 0; i < modelled.size(); ++i) {
    OperatorCost& c = step.cost.operators[i];
    const double factor = modelled[i] > 0 ? simulated->cycles[i] / modelled[i] : 0;
    c.matrix *= factor;
    c.vector *= factor;
    c.memory = modelled[i] > 0 ? c.memory * factor : simulated->cycles[i];
    c.cycles = simulated->cycles[i] + c.host;
  }
  step.time.memory += simulated->other / (device_->clock.ghz * 1e9);
  step.stretches.push_back({simulated->other / (device_->clock.ghz * 1e9), 0, Stretch::Kind::kDevice});
  return true;
}

Expected<StepTimer::DeviceStep> StepTimer::device_step(const StepTotals& work, bool simulate) {
  const Device& device = *device_;
  const bool host = device.host.cores > 0;
  DeviceStep step{graph_({.rows = work.rows, .scored = work.scored}), {}, {}, {}, {}, {}, {}};
  step.load = {.sequences = work.sequences, .keys = work.keys, .fused_head = !host};
  DLLM_TRY(step.cost, model_->evaluate(step.graph, step.load));
  std::vector<double> array;  // the model's, for energy: simulated times contain waiting
  for (const OperatorCost& c : step.cost.operators) array.push_back(c.matrix);
  if (simulate) {
    DLLM_TRY(step.simulated, use_simulated(step, work));
  }
  const double hertz = device.clock.ghz * 1e9;
  for (std::size_t i = 0; i < step.graph.ops.size(); ++i) {
    const Op& op = step.graph.ops[i];
    OperatorCost& c = step.cost.operators[i];
    // The host looks up the embeddings, so that the device sees none of it.
    const bool embeds = host && std::holds_alternative<op::Embed>(op);
    if (embeds) step.add_host(host_operator(step.graph, device, op, work.sequences, work.keys));
    if (embeds || operator_rows(step.graph, op) == 0) {
      c = {.op = c.op};
      continue;
    }
    const double most = std::max({c.matrix, c.vector, c.memory}), seconds = most / hertz;
    (most == c.memory ? step.time.memory : most == c.matrix ? step.time.array : step.time.vector) += seconds;
    step.time.dispatch += c.host / hertz;
    step.stretches.push_back({c.host / hertz, 0, Stretch::Kind::kDispatch});
    step.stretches.push_back({seconds, c.read_bytes + c.write_bytes, Stretch::Kind::kDevice});
    step.sum.macs += c.macs;
    step.sum.matrix += array[i];
    step.sum.lane_ops += c.lane_ops;
    step.sum.read_bytes += c.read_bytes;
    step.sum.write_bytes += c.write_bytes;
  }
  step.add_host(host_reduction(device, work.scored, vocabulary(step.graph)));
  return step;
}

/// Which tensors are staged: places have room for the largest step, and transfers hide in an ordinary one.
Expected<void> StepTimer::place() {
  StepTotals largest = bucket(most_), usual = largest;
  usual.rows = std::min(largest.rows, round_up(kUsualRows, device_->array.blen) * largest.sequences);
  largest.scored = usual.scored = usual.rows;
  DLLM_TRY(const DeviceStep small, device_step(usual, false));
  DLLM_TRY(const DeviceStep large, device_step(largest, false));
  const MemoryProgram times = small.program(*device_);
  MemoryProgram program = large.program(*device_);
  for (std::size_t i = 0; i < program.ops.size(); ++i) program.ops[i].seconds = times.ops[i].seconds;
  DLLM_TRY(const MemoryPlan plan, plan_memory(program, *limits_));
  slot_bytes_ = plan.slot_bytes;
  staged_bytes_ = plan.staged_bytes;
  for (const TensorPlace& place : plan.places) staged_.push_back(place.kind == TensorPlace::kStaged);
  return {};
}

/// Precondition: the device has a window.
Expected<double> StepTimer::waiting(const MemoryProgram& program) const {
  if (!options_.planner) {
    DLLM_TRY(const Paging paging, page_program(program, *limits_));
    return paging.seconds;
  }
  if (slot_bytes_ == 0) return 0.0;
  double computing = 0;
  for (const MemoryOp& op : program.ops) computing += op.seconds;
  return std::max(0.0, StagingTimeline(program, *limits_, slot_bytes_).run(staged_).seconds - computing);
}

StepProfile StepTimer::host_profile(const StepTotals& work) const {
  const Device& device = *device_;
  const HostWork host =
      host_step(graph_({.rows = work.rows, .scored = work.scored}), device, work.sequences, work.keys);
  StepTime time;
  time.host = host.seconds;
  time.energy.host_active = device.host.active_w * host.seconds;
  time.energy.dram = traffic_joules(device, host.bytes) + step_energy(device, {}, host.seconds).dram_background;
  return {time, {{host.seconds, host.bytes, Stretch::Kind::kHost}}, TimeSource::kBound};
}

Expected<StepProfile> StepTimer::compute(const StepTotals& work) {
  if (options_.processor == StepProcessor::kHost) return host_profile(work);
  const Device& device = *device_;
  DLLM_TRY(DeviceStep step, device_step(work, options_.simulate));
  StepTime time = step.time;
  if (limits_) {
    DLLM_TRY(time.staging, waiting(step.program(device)));
    step.stretches.push_back({time.staging, 0, Stretch::Kind::kDevice});
  }
  time.host = step.host.seconds;
  add_energy(time.energy, step_energy(device, npu::work(device, step.sum), time.seconds()));
  time.energy.dram += traffic_joules(device, step.host.bytes);
  const HostKeys& h = device.host;
  if (h.cores > 0) {
    time.energy.host_active = h.active_w * time.host + dispatch_watts(device) * time.dispatch;
    time.energy.host_idle = h.idle_w * (time.seconds() - time.host - time.dispatch);
  }
  std::erase_if(step.stretches, [](const Stretch& one) { return one.seconds <= 0; });
  return StepProfile{time, std::move(step.stretches), step.simulated ? TimeSource::kSimulated : TimeSource::kBound};
}

Expected<StepTime> StepTimer::time(const StepTotals& work) {
  if (work.rows == 0) return StepTime{};
  DLLM_TRY(const StepProfile* const step, profile(work));
  return step->time;
}

Expected<const StepProfile*> StepTimer::profile(const StepTotals& work) {
  const StepTotals key = bucket(work);
  if (const auto found = known_.find(key); found != known_.end()) return &found->second;
  const StepTotals room = bucket(most_);
  if (work.sequences < 1 || work.rows < 1 || work.scored > work.rows || work.keys < 1 || key.rows > room.rows ||
      key.keys * key.sequences > room.keys * room.sequences)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} rows of {} sequences that see {} keys, in a place for {} of {} that see {}", work.rows,
                             work.sequences, work.keys, most_.rows, most_.sequences, most_.keys),
                 "", ""};
  DLLM_TRY(StepProfile step, compute(key));
  return &known_.emplace(key, std::move(step)).first->second;
}

}  // namespace dllm::npu
