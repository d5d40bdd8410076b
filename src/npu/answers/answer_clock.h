#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "npu/answers/step_timer.h"

namespace dllm::npu {

/// A step of an answer, and how long it took in virtual time.
struct TimedStep {
  StepWork work;
  StepTime time;
};

/// The virtual clock of an answer: the steps since it was reset.
class AnswerClock {
 public:
  void reset() { steps_.clear(); }
  void advance(const TimedStep& step) { steps_.push_back(step); }
  const std::vector<TimedStep>& steps() const { return steps_; }
  /// Of the steps before `end`.
  StepTime sum(std::size_t end) const;
  StepTime sum() const { return sum(steps_.size()); }

 private:
  std::vector<TimedStep> steps_;
};

/// {"ms": …, "joules": …, "parts_ms": {…}, "parts_joules": {…}}
nlohmann::ordered_json step_time_json(const StepTime& time);

}  // namespace dllm::npu
