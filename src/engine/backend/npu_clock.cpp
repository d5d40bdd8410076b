#include "engine/backend/npu_clock.h"

#include <nlohmann/json.hpp>

#include "npu_backend/timed/timed_backend.h"

namespace dllm {
void NpuClock::reset() { backend_.clock().reset(); }

VirtualTime NpuClock::read(const Generation& answer) const {
  const npu::AnswerClock& clock = backend_.clock();
  VirtualTime time;
  time.device = device_;
  for (const npu::TimedStep& step : clock.steps())
    time.steps.push_back({static_cast<std::int32_t>(step.work.rows), static_cast<std::int32_t>(step.work.scored),
                          static_cast<std::int32_t>(step.work.keys), step.time, step.time.energy, step.rise,
                          step.throttled, step.simulated});
  for (const npu::TimedRefresh& one : clock.refreshes())
    time.refreshes.push_back({static_cast<std::int32_t>(one.work.rows), static_cast<std::int32_t>(one.work.scored),
                              static_cast<std::int32_t>(one.work.keys), one.start, one.end});
  time.unsimulated = backend_.unsimulated();
  for (const npu::TimedBackend* const one : drafter_)
    if (time.unsimulated.empty()) time.unsimulated = one->unsimulated();
  time.parts = clock.sum();
  time.energy = clock.sum().energy;
  time.prompt_seconds = clock.sum(1).seconds();
  time.first_block_seconds = clock.sum(first_block_passes(answer)).seconds();
  return time;
}

Expected<LatencyTable> NpuClock::latency_table() {
  constexpr std::int64_t kMostRows = 256;
  return backend_.latency_table(kMostRows);
}

nlohmann::ordered_json NpuClock::settings() const {
  return {{"device", device_},
          {"processor", timing_.processor == npu::StepProcessor::kHost ? "host" : "device"},
          {"planner", timing_.planner},
          {"skip_logits", timing_.skip_logits},
          {"timing", timing_.simulate ? "simulated" : "analytic"}};
}

std::future<Expected<std::vector<Scores>>> TimedPassRunner::start(SequenceStep step) {
  return backend_.launch(std::move(step));
}

void TimedPassRunner::wait_for(const KvCache& cache) { backend_.wait_for(cache); }

void TimedPassRunner::drop(const KvCache& cache) { backend_.drop(cache); }

}  // namespace dllm
