#pragma once

#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "npu_compiler/answers/answer_clock.h"

namespace dllm::npu {

/// Of a batch: its sequences with rows, and the most positions that one of them sees.
StepTotals step_totals(std::span<const SequenceStep> batch);

/// Runs steps with any backend and advances a virtual clock by what they would take on a device. Values, and so
/// answers, are those of the other backend.
class TimedBackend final : public Backend {
 public:
  /// Errors: those of StepTimer::create() for the smallest step, so that an unsuitable device is reported at once.
  /// `beside`: a backend on the same device, whose clock this one advances too; null: it has a clock of its own.
  static Expected<std::unique_ptr<TimedBackend>> create(std::unique_ptr<Backend> values, const Device& device,
                                                        StepTimer::GraphFactory graph, const TimerOptions& options,
                                                        const TimedBackend* beside = nullptr,
                                                        StepKind kind = StepKind::kPass);

  const ModelDesc& desc() const override { return values_->desc(); }
  bool runs_shadows() const override { return values_->runs_shadows(); }
  /// A branch is priced as a sequence of its own, which reads all K and V that it sees.
  bool runs_branches() const override { return values_->runs_branches(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return values_->make_cache(capacity); }
  /// Errors: also those of StepTimer::time(), before values are computed.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

  AnswerClock& clock() { return *clock_; }
  /// StepTimer::unsimulated() of the steps until now.
  const std::string& unsimulated() const { return unsimulated_; }
  // The second path on the device's host. Precondition: the profile describes one.
  /// Computes a pass's values at once; the future is ready when the clock says that the host has finished it. Each
  /// sequence has a cache of its own for such passes, and one pass at a time.
  std::future<Expected<std::vector<Scores>>> launch(SequenceStep step);
  /// Advances the clock until the pass on this cache is finished.
  void wait_for(const KvCache& cache);
  /// Nobody waits for the pass on this cache any more.
  void drop(const KvCache& cache);
  /// What a step takes on the device that is not too hot. Errors: those of the timer.
  Expected<double> seconds(const StepTotals& totals);
  /// The cost of steps on the device: both edges of every stair up to `most_rows`. Errors: those of the timer.
  Expected<LatencyTable> latency_table(std::int64_t most_rows);

 private:
  TimedBackend(std::unique_ptr<Backend> values, const Device& device, StepTimer::GraphFactory graph,
               const TimerOptions& options, std::shared_ptr<AnswerClock> clock, StepKind kind);
  Expected<std::vector<Scores>> run(std::span<const SequenceStep> batch);
  /// `slow`: at the lowered clock.
  Expected<StepTimer*> timer_for(const StepTotals& totals, Position capacity, bool slow);

  /// A pass of the second path whose results are not ready yet.
  struct Launched {
    const KvCache* cache;  ///< each sequence has one, and one pass at a time
    std::size_t refresh;   ///< by the clock
    std::vector<Scores> scores;
    std::promise<Expected<std::vector<Scores>>> promise;
  };
  const Launched* launched_on(const KvCache& cache) const;
  void hand_over_finished();

  std::unique_ptr<Backend> values_;
  std::shared_ptr<const Device> device_;
  StepTimer::GraphFactory graph_;
  TimerOptions options_;
  std::unique_ptr<StepTimer> timers_[2];  ///< at the full clock, and at the lowered one
  std::shared_ptr<AnswerClock> clock_;
  StepKind kind_ = StepKind::kPass;
  std::string unsimulated_;
  std::vector<Launched> launched_;
};

/// A backend without weights: predictions are one ordinary token at equal confidence. For replays of recorded commits,
/// whose choices do not depend on predictions.
class ValuelessBackend final : public Backend {
 public:
  explicit ValuelessBackend(ModelDesc desc);

  const ModelDesc& desc() const override { return desc_; }
  bool runs_shadows() const override { return true; }
  bool runs_branches() const override { return true; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  /// For second paths: between caches of this kind.
  static void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions);
  /// Precondition: no request for logits.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  ModelDesc desc_;
  TokenId token_ = 0;  ///< the first that is neither the mask nor ends an answer
};

}  // namespace dllm::npu
