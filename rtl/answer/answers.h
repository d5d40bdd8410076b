#pragma once

#include <memory>
#include <string>
#include <vector>

#include "answer/core_executor.h"
#include "dllm/generate.h"
#include "model/model.h"
#include "npu_backend/functional/npu_backend.h"

namespace dllm::rtl {

/// A model on a core in simulation, and the same model on the accuracy simulator of the core's device, which is what
/// `dllm run --backend npu --device FILE` runs.
class CoreAnswers {
 public:
  /// Errors: those of core_device(), CoreShape::make, npu::NpuBackend::create() and
  /// npu::accuracy::AccuracyBackend::create().
  static Expected<std::unique_ptr<CoreAnswers>> create(std::shared_ptr<const Model> model, const CoreShape& shape,
                                                       MemoryTiming timing = {});

  struct Answer {
    Generation core, device;
    bool equal() const {
      return core.ids == device.ids && core.text == device.text && core.commit_step == device.commit_step &&
             core.confidence == device.confidence;
    }
  };
  /// Errors: those of generate() and CoreExecutor::run().
  Expected<Answer> answer(const std::vector<TokenId>& prompt, const ResolvedOptions& options);
  Backend& on_core() { return *on_core_; }
  Backend& on_device() { return *on_device_; }

  const CoreTotals& totals() const { return core_->totals(); }

 private:
  std::shared_ptr<const Model> model_;
  std::unique_ptr<CoreDevice> device_;
  std::unique_ptr<CoreExecutor> core_;
  std::unique_ptr<npu::NpuBackend> on_core_;
  std::unique_ptr<Backend> on_device_;
};

/// By how many per cent of its cycles the core's transfers take longer than the cycle simulator's.
double transfers_apart(const CoreTotals& totals);
/// Cycles of a core by kind of instruction beside the cycle simulator's, as text.
std::string cycle_table(const CoreTotals& totals);

}  // namespace dllm::rtl
