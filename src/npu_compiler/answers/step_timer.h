#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "graph/graph.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/answers/host_queue.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_compiler/runtime/memory_plan.h"
#include "npu_compiler/runtime/staging.h"

namespace dllm::npu {

struct Device;

/// What runs the steps of an answer.
enum class StepProcessor : std::uint8_t {
  kDevice,  ///< the NPU, with the host for embeddings and for the reduction of logits
  kHost,    ///< the host's processor alone, the baseline
};

struct TimerOptions {
  StepProcessor processor = StepProcessor::kDevice;
  bool planner = true;      ///< false: weights outside the window are paged (paging.h)
  bool skip_logits = true;  ///< false: the LM head computes every row
  /// Operators on the device take what the cycle-accurate model says (simulated_step.h), in steps that it can run.
  bool simulate = false;
  std::string timing_cache{};  ///< directory of its reports; "": none
};

/// The size of a step whose sequences may differ (equal ones: StepSize).
struct StepTotals {
  std::int64_t sequences = 1;
  std::int64_t rows = 0;    ///< of all sequences
  std::int64_t scored = 0;  ///< of these, rows that the LM head computes
  std::int64_t keys = 1;    ///< positions that the rows of a sequence see
  auto operator<=>(const StepTotals&) const = default;
};

/// A step: seconds by cause and joules by consumer. An operator's time on the device counts for the unit that limits
/// it, and its dispatch apart; unpacking weights is work of the vector unit. contention and refresh are 0 but in steps
/// that run at the same time as the second path (AnswerClock).
struct StepTime : VirtualParts {
  VirtualEnergy energy;

  StepTime& operator+=(const StepTime& other);
  /// Every part times a factor.
  StepTime scaled(double factor) const;
};

/// A step that runs alone, and the work that it consists of, in its order.
struct StepProfile {
  StepTime time;
  std::vector<Stretch> stretches;          ///< their seconds sum to the time's
  TimeSource source = TimeSource::kBound;  ///< operators in sequence, or simulated (TimerOptions::simulate)
};

/// Times steps of one model on one device in virtual time. Steps are padded to buckets (multiples of BLEN in rows of a
/// sequence, scored rows and keys), so that times are stairs, as those of programs compiled for shapes; each bucket is
/// computed once. The host's own steps are not padded. Deterministic.
///
/// Operators run in sequence, as a driver submits them, with the units overlapping within each. On a device with an
/// address window the planner places tensors once, for the largest step that `most` allows; steps of all sizes keep
/// these places and differ in what they wait for.
class StepTimer {
 public:
  using GraphFactory = std::function<Graph(StepShape)>;

  /// `most`: the largest step; `graph` is copied and must be valid as long as the timer. Errors: kUnsupported
  /// (operators or keys of the device that the model of costs does not know; no host is described where it is to run
  /// steps); kResource if the window cannot hold the step.
  static Expected<StepTimer> create(const Device& device, GraphFactory graph, const StepTotals& most,
                                    const TimerOptions& options);

  StepTimer(StepTimer&&) noexcept;
  ~StepTimer();

  /// Errors: kResource if a mapping fails (without the planner); kUsage for a step larger than `most`.
  Expected<StepTime> time(const StepTotals& work);
  /// Errors: those of time(). Valid as long as the timer.
  Expected<const StepProfile*> profile(const StepTotals& work);

  const Device& device() const { return *device_; }
  const TimerOptions& options() const { return options_; }
  const StepTotals& most() const { return most_; }
  /// Bytes of weights that are staged in each step with the planner; 0: everything is resident.
  std::int64_t staged_bytes() const { return staged_bytes_; }
  std::size_t buckets() const { return known_.size(); }
  /// Why the model of costs timed a bucket that was to be simulated, the first such one; "": there is none.
  const std::string& unsimulated() const { return unsimulated_; }
  /// The bucket that a step is padded to.
  StepTotals bucket(const StepTotals& work) const;

 private:
  StepTimer(const Device& device, GraphFactory graph, const StepTotals& most, const TimerOptions& options);

  struct DeviceStep;
  Expected<DeviceStep> device_step(const StepTotals& work, bool simulate);
  Expected<bool> use_simulated(DeviceStep& step, const StepTotals& work);
  Expected<void> place();
  Expected<double> waiting(const MemoryProgram& program) const;
  Expected<StepProfile> compute(const StepTotals& work);
  StepProfile host_profile(const StepTotals& work) const;

  std::unique_ptr<Device> device_;  ///< on the heap: the model of costs borrows it
  GraphFactory graph_;
  StepTotals most_;
  TimerOptions options_;
  std::optional<CostModel> model_;
  std::optional<MemoryLimits> limits_;  ///< absent: no window
  std::vector<char> staged_;            ///< by tensor
  std::int64_t slot_bytes_ = 0, staged_bytes_ = 0;
  std::map<StepTotals, StepProfile> known_;
  std::string unsimulated_;
};

}  // namespace dllm::npu
