#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "npu_compiler/answers/heat.h"
#include "npu_compiler/answers/host_queue.h"
#include "npu_compiler/answers/step_timer.h"

namespace dllm::npu {

/// What a step is to the loop that counts passes.
enum class StepKind : std::uint8_t {
  kPass,  ///< a pass
  kPart,  ///< work for the pass before it: a drafter reads its hidden states
};

/// A step of an answer, and how long it took in virtual time.
struct TimedStep {
  StepTotals work;
  StepTime time;
  double rise = 0;         ///< temperature at its end, kelvin above the surroundings
  bool throttled = false;  ///< it ran at the lowered clock
  bool simulated = false;  ///< on the cycle-accurate model
  StepKind kind = StepKind::kPass;
};

/// A pass of the second path, on the host.
struct TimedRefresh {
  StepTotals work;
  double start = 0, end = 0;  ///< seconds of the clock
};

/// The virtual clock of an answer: the steps since it was reset, and the refreshes that the host computed while they
/// ran. A refresh adds to the steps' time what they lose to it: bandwidth of memory, and waiting for its results.
class AnswerClock {
 public:
  /// `processor`: what runs the steps. On the host, they and the refreshes take turns.
  AnswerClock(const Device& device, StepProcessor processor);

  void reset();
  /// What the next step runs on: the device, at the lowered clock if it is too hot.
  const Device& device() const { return throttled() ? *slow_ : *device_; }
  bool throttled() const { return heat_.throttled(); }
  /// A step, during which the host works on what was launched.
  void advance(const StepTotals& work, const StepProfile& step, StepKind kind = StepKind::kPass);
  /// Adds a refresh to what the host computes; returns its index. Precondition: the device has a described host.
  std::size_t launch(const StepTotals& work, std::vector<Stretch> host);
  bool finished(std::size_t refresh) const { return queue_->finished(refresh); }
  /// Waits until it is finished. The time counts for the latest step, which must exist.
  void wait(std::size_t refresh);
  /// Nobody waits for it any more.
  void drop(std::size_t refresh);

  const std::vector<TimedStep>& steps() const { return steps_; }
  /// Of those that began.
  std::vector<TimedRefresh> refreshes() const;
  /// Of the first `passes`.
  StepTime sum(std::size_t passes) const;
  StepTime sum() const { return sum(steps_.size()); }

 private:
  void add(const Overlap& overlap, double StepTime::* part, double seconds);

  std::shared_ptr<const Device> device_, slow_;
  HeatModel heat_;
  StepProcessor processor_;
  std::vector<TimedStep> steps_;
  double begin_ = 0, now_ = 0;      ///< of the latest step, and its end
  std::optional<HostQueue> queue_;  ///< absent: no described host
  std::vector<StepTotals> launched_;
};

}  // namespace dllm::npu
