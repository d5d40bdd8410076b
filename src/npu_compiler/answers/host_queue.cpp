#include "npu_compiler/answers/host_queue.h"
#include "npu_core/device/device.h"

#include <algorithm>
#include <utility>

namespace dllm::npu {

HostQueue::HostQueue(const Device& device)
    : capacity_((device.host.shared_gbps > 0 ? device.host.shared_gbps : device.memory_config.peak_gbps()) * 1e9),
      most_cores_(device.host.cores > 1 ? 1 - 1 / static_cast<double>(device.host.cores) : 0) {}

std::size_t HostQueue::push(std::vector<Stretch> work) {
  std::erase_if(work, [](const Stretch& one) { return one.seconds <= 0; });
  passes_.push_back({std::move(work)});
  return passes_.size() - 1;
}

void HostQueue::drop(std::size_t pass, double now) {
  if (finished(pass)) return;
  passes_[pass].end = now;
  passes_[pass].dropped = true;
  if (pass == next_) stretch_ = 0, done_ = 0;
  skip_ended(now);
}

/// Makes `next_` the first pass with work, and ends those without.
void HostQueue::skip_ended(double now) {
  for (; next_ < passes_.size(); ++next_, stretch_ = 0, done_ = 0) {
    Pass& pass = passes_[next_];
    if (pass.end >= 0) continue;
    if (pass.start < 0) pass.start = now;
    if (stretch_ < pass.work.size()) return;
    pass.end = now;
  }
}

HostQueue::Speeds HostQueue::speeds(const Stretch& step, const Stretch& queue) const {
  if (step.kind == Stretch::Kind::kHost) return {1, 0};
  if (step.kind == Stretch::Kind::kDispatch) return {1, most_cores_};
  const double a = step.bytes / step.seconds, b = queue.bytes / queue.seconds;
  if (a + b <= capacity_) return {};
  const double half = capacity_ / 2;
  const double to_a = std::min(a, std::max(half, capacity_ - b)), to_b = std::min(b, std::max(half, capacity_ - a));
  return {a > 0 ? to_a / a : 1, b > 0 ? to_b / b : 1};
}

/// Until the step's stretch, of which `left` seconds are left, or the queue's ends; returns what is left of the
/// former. Null: the host alone. Precondition: the queue is not empty.
double HostQueue::advance(const Stretch* step, double left, double now, Overlap& overlap) {
  const Pass& pass = passes_[next_];
  const Stretch& mine = pass.work[stretch_];
  const double rest = mine.seconds - done_;
  const Speeds speed = step != nullptr ? speeds(*step, mine) : Speeds{0, 1};
  const double to_step = step != nullptr ? left / speed.step : 0;
  const bool ends = speed.queue > 0 && (step == nullptr || rest / speed.queue <= to_step);
  const double passed = ends ? rest / speed.queue : to_step;
  const double progress = ends ? rest : passed * speed.queue;
  overlap.seconds += passed;
  if (step != nullptr) overlap.lost += passed * (1 - speed.step);
  if (speed.queue > 0) {
    overlap.busy += passed;
    if (step != nullptr && step->kind == Stretch::Kind::kDispatch) overlap.dispatch += passed;
    overlap.bytes += mine.bytes * progress / mine.seconds;
  }
  done_ += progress;
  if (ends) ++stretch_, done_ = 0;
  skip_ended(now + overlap.seconds);
  return ends ? std::max(0.0, left - passed * speed.step) : 0;
}

Overlap HostQueue::run(std::span<const Stretch> step, double now) {
  Overlap overlap;
  skip_ended(now);
  for (const Stretch& one : step) {
    double left = one.seconds;
    while (left > 0 && !empty()) left = advance(&one, left, now, overlap);
    overlap.seconds += left;
  }
  return overlap;
}

Overlap HostQueue::finish(std::size_t pass, double now) {
  Overlap overlap;
  skip_ended(now);
  while (!finished(pass)) advance(nullptr, 0, now, overlap);
  return overlap;
}

}  // namespace dllm::npu
