#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/second_path_runner.h"
#include "engine/virtual_time.h"
#include "npu_compiler/answers/step_timer.h"

namespace dllm {

namespace npu {
class TimedBackend;
}

/// The clock of a simulated device.
class NpuClock final : public VirtualClock {
 public:
  /// `backend` is borrowed. `device`: its name.
  NpuClock(npu::TimedBackend& backend, std::string device, npu::TimerOptions timing)
      : backend_(backend), device_(std::move(device)), timing_(std::move(timing)) {}

  /// Of a drafter, whose steps are on this clock too. Borrowed.
  void add_drafter(const npu::TimedBackend& context, const npu::TimedBackend& block) { drafter_ = {&context, &block}; }

  void reset() override;
  VirtualTime read(const Generation& answer) const override;
  Expected<LatencyTable> latency_table() override;
  nlohmann::ordered_json settings() const override;

 private:
  npu::TimedBackend& backend_;
  std::vector<const npu::TimedBackend*> drafter_;
  std::string device_;
  npu::TimerOptions timing_;
};

/// Runs passes on the host of a simulated device, in its virtual time: TimedBackend's second path. On the caller's
/// thread.
class TimedPassRunner final : public PassRunner {
 public:
  /// `backend` is borrowed. `copy_rows`: of the backend that computes its values.
  TimedPassRunner(npu::TimedBackend& backend, ThreadedPassRunner::CopyRows copy_rows)
      : backend_(backend), copy_rows_(std::move(copy_rows)) {}

  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override;
  void wait_for(const KvCache& cache) override;
  void drop(const KvCache& cache) override;
  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override {
    copy_rows_(from, to, rows);
  }

 private:
  npu::TimedBackend& backend_;
  ThreadedPassRunner::CopyRows copy_rows_;
};

}  // namespace dllm
