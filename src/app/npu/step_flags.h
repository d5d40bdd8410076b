#pragma once

#include <cstdint>
#include <string>

#include "app/npu/flags.h"
#include "npu_compiler/compiler/device_step.h"

namespace dllm::app {

using npu::CompiledStep;

/// The flags that select the step: model, device, rows.
struct StepFlags {
  NpuModelFlags model;
  DeviceFlags device;
  RoutingFlags routing;
  npu::StepRequest request;  ///< without `choices`, which are `routing`'s

  void add(Flags& flags);
  /// `use`: what the verb does with the device beyond these flags.
  Expected<CompiledStep> compile(npu::VerbUse use) const;
  /// Model and numbers, as reported with every figure.
  void describe(const CompiledStep& compiled, nlohmann::ordered_json& json) const;
  /// Messages for people: the number of parts, the assumptions.
  std::string text(const CompiledStep& compiled) const;
};

}  // namespace dllm::app
