#include "engine/virtual_time.h"

#include <algorithm>

#include "npu_backend/timed/timed_backend.h"

namespace dllm {
namespace {

VirtualParts parts_of(const npu::StepTime& t) {
  return {t.array, t.vector, t.memory, t.dispatch, t.staging, t.host, t.contention, t.refresh};
}

VirtualEnergy energy_of(const npu::StepTime& t) {
  const npu::StepTime::Energy& e = t.energy;
  return {e.compute, e.dram, e.standby, e.host_active, e.host_idle};
}

}  // namespace

VirtualTime virtual_time(const RunningBackend& running, const Generation& answer) {
  const npu::AnswerClock& clock = running.timed->clock();
  VirtualTime time;
  time.device = running.device;
  for (const npu::TimedStep& step : clock.steps())
    time.steps.push_back({static_cast<std::int32_t>(step.work.rows), static_cast<std::int32_t>(step.work.scored),
                          static_cast<std::int32_t>(step.work.keys), parts_of(step.time), energy_of(step.time),
                          step.rise, step.throttled, step.simulated});
  for (const npu::TimedRefresh& one : clock.refreshes())
    time.refreshes.push_back({static_cast<std::int32_t>(one.work.rows), static_cast<std::int32_t>(one.work.scored),
                              static_cast<std::int32_t>(one.work.keys), one.start, one.end});
  time.unsimulated = running.timed->unsimulated();
  time.parts = parts_of(clock.sum());
  time.energy = energy_of(clock.sum());
  time.prompt_seconds = clock.sum(1).seconds();
  const auto block =
      std::min(answer.commit_step.size(), static_cast<std::size_t>(std::max(1, answer.options.block_length)));
  std::int32_t last = -1;
  for (std::size_t i = 0; i < block; ++i) last = std::max(last, answer.commit_step[i]);
  time.first_block_seconds = clock.sum(static_cast<std::size_t>(last + 1)).seconds();
  return time;
}

void reset_clock(const RunningBackend& running) {
  if (running.timed != nullptr) running.timed->clock().reset();
}

Expected<LatencyTable> device_latency(const RunningBackend& running) {
  constexpr std::int64_t kMostRows = 256;
  return running.timed->latency_table(kMostRows);
}

}  // namespace dllm
