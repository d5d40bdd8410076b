#include "npu_compiler/answers/answer_clock.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "npu_compiler/answers/answer_energy.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

AnswerClock::AnswerClock(const Device& device, StepProcessor processor)
    : device_(std::make_shared<const Device>(device)),
      slow_(device.thermal.sustained_w > 0 ? std::make_shared<const Device>(npu::throttled(device)) : device_),
      heat_(device.thermal),
      processor_(processor) {
  reset();
}

void AnswerClock::reset() {
  steps_.clear();
  launched_.clear();
  begin_ = now_ = 0;
  heat_ = HeatModel(device_->thermal);
  queue_.reset();
  if (device_->host.cores > 0) queue_.emplace(*device_);
}

void AnswerClock::advance(const StepTotals& work, const StepProfile& step, StepKind kind) {
  steps_.push_back({work, step.time, 0, throttled(), step.source == TimeSource::kSimulated, kind});
  begin_ = now_;
  if (queue_ && !queue_->empty()) {
    const Overlap overlap = queue_->run(step.stretches, now_);
    add(overlap, &StepTime::contention, overlap.lost);
  }
  now_ = begin_ + steps_.back().time.seconds();
  heat_.add(steps_.back().time.energy.joules(), steps_.back().time.seconds());
  steps_.back().rise = heat_.rise();
}

std::size_t AnswerClock::launch(const StepTotals& work, std::vector<Stretch> host) {
  launched_.push_back(work);
  return queue_->push(std::move(host));
}

void AnswerClock::wait(std::size_t refresh) {
  assert(!steps_.empty());
  const Overlap overlap = queue_->finish(refresh, now_);
  TimedStep& last = steps_.back();
  const double before = last.time.energy.joules();
  add(overlap, &StepTime::refresh, overlap.seconds);
  now_ = begin_ + last.time.seconds();
  heat_.add(last.time.energy.joules() - before, overlap.seconds);
  last.rise = heat_.rise();
}

void AnswerClock::drop(std::size_t refresh) { queue_->drop(refresh, now_); }

/// Adds to the latest step what the host's work beyond its own took: time in a part, and energy.
void AnswerClock::add(const Overlap& overlap, double StepTime::* part, double seconds) {
  StepTime& time = steps_.back().time;
  const Device& device = steps_.back().throttled ? *slow_ : *device_;
  time.*part += seconds;
  add_waiting_energy(device, processor_, seconds, time.energy);
  time.energy.dram += traffic_joules(device, overlap.bytes);
  const HostKeys& h = device.host;
  // A core that dispatches was counted as one that works, the others as idle.
  time.energy.host_active += h.active_w * overlap.busy - dispatch_watts(device) * overlap.dispatch;
  time.energy.host_idle += h.idle_w * (seconds - (overlap.busy - overlap.dispatch));
}

std::vector<TimedRefresh> AnswerClock::refreshes() const {
  std::vector<TimedRefresh> result;
  for (std::size_t i = 0; i < launched_.size(); ++i) {
    const HostQueue::Pass& pass = queue_->passes()[i];
    if (pass.start >= 0) result.push_back({launched_[i], pass.start, pass.end >= 0 ? pass.end : now_});
  }
  return result;
}

StepTime AnswerClock::sum(std::size_t passes) const {
  StepTime sum;
  for (const TimedStep& step : steps_) {
    if (step.kind == StepKind::kPass && passes-- == 0) break;
    sum += step.time;
  }
  return sum;
}

}  // namespace dllm::npu
