#pragma once

#include <cstdint>
#include <string>

#include "app/npu/flags.h"
#include "npu/compiler/split_step.h"
#include "npu/compiler/workload_step.h"
#include "npu/machine/config.h"

namespace dllm::app {

/// A denoising step of a model on a device, compiled.
struct CompiledStep {
  npu::ModelShape shape;
  npu::Device device;
  npu::MachineConfig machine;
  npu::ModelLayout layout;
  npu::SplitStep step;
  double milliseconds = 0;  ///< compile time, layout included
};

/// The flags that select the step: model, device, rows.
struct StepFlags {
  NpuModelFlags model;
  DeviceFlags device;
  npu::StepWorkload work{.batch = 16, .rows = 32, .context = 256};
  RoutingFlags routing;
  std::int64_t layers = 0;  ///< 0: all of the shape
  npu::CacheKind cache = npu::CacheKind::kDual;
  std::int64_t suffix = -1;  ///< as Workload::suffix
  bool reduced = false;      ///< the head is reduced on chip

  void add(Flags& flags);
  /// Resolves `work` for the cache: rows and scored then describe what runs. Logits go to memory in the device's
  /// format, from which the sampling kernels read them.
  Expected<CompiledStep> compile();
  /// Model and numbers, as reported with every figure.
  void describe(const CompiledStep& compiled, nlohmann::ordered_json& json) const;
  /// Messages for people: the number of parts, the assumptions.
  std::string text(const CompiledStep& compiled) const;
};

}  // namespace dllm::app
