#pragma once

#include <memory>
#include <span>

#include "npu_compiler/runtime/memory_plan.h"

namespace dllm::npu {

/// MemoryPlan::waiting_seconds of programs that differ only in how long their operators take: what depends on sizes and
/// limits is done once. A placement is searched only if an even spread of the staged bytes does not hide all transfers:
/// if it does, nothing waits, and no placement has a shorter wait. Without a search the even spread's wait counts,
/// which is never shorter than the plan's.
class StagedWaits {
 public:
  /// Errors: those of plan_memory().
  static Expected<StagedWaits> create(MemoryProgram program, const MemoryLimits& limits);
  StagedWaits(StagedWaits&&) noexcept;
  StagedWaits& operator=(StagedWaits&&) noexcept;
  ~StagedWaits();

  /// `seconds`: of each operator. Errors: kUsage (another number of operators); those of plan_memory().
  Expected<double> waiting(std::span<const double> seconds, bool search = true);

 private:
  struct State;
  explicit StagedWaits(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dllm::npu
