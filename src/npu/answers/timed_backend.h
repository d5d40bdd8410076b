#pragma once

#include <functional>
#include <memory>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "npu/answers/answer_clock.h"

namespace dllm::npu {

/// The shape of a batch: sequences with rows, and the most positions that one of them sees.
StepWork step_work(std::span<const SequenceStep> batch);

/// Runs steps with any backend and advances a virtual clock by what they would take on a device. Values, and so
/// answers, are those of the other backend.
class TimedBackend final : public Backend {
 public:
  /// Errors: those of StepTimer::create() for the smallest step, so that an unsuitable device is reported at once.
  static Expected<std::unique_ptr<TimedBackend>> create(std::unique_ptr<Backend> values, const Device& device,
                                                        StepTimer::GraphFactory graph, const TimerOptions& options);

  const ModelDesc& desc() const override { return values_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return values_->make_cache(capacity); }
  /// Errors: also those of StepTimer::time(), before values are computed.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

  AnswerClock& clock() { return clock_; }
  /// The cost of steps on the device: both edges of every stair up to `most_rows`. Errors: those of the timer.
  Expected<LatencyTable> latency_table(std::int64_t most_rows);

 private:
  TimedBackend(std::unique_ptr<Backend> values, const Device& device, StepTimer::GraphFactory graph,
               const TimerOptions& options)
      : values_(std::move(values)), device_(device), graph_(std::move(graph)), options_(options) {}
  Expected<StepTimer*> timer_for(const StepWork& work, Position capacity);

  std::unique_ptr<Backend> values_;
  Device device_;
  StepTimer::GraphFactory graph_;
  TimerOptions options_;
  std::unique_ptr<StepTimer> timer_;
  AnswerClock clock_;
};

/// A backend without weights: predictions are one ordinary token at equal confidence. For replays of recorded commits,
/// whose choices do not depend on predictions.
class ValuelessBackend final : public Backend {
 public:
  explicit ValuelessBackend(ModelDesc desc);

  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  /// Precondition: no request for logits.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  ModelDesc desc_;
  TokenId token_ = 0;  ///< the first that is neither the mask nor ends an answer
};

}  // namespace dllm::npu
