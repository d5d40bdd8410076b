#pragma once

#include "dllm/error.h"
#include "dllm/model.h"
#include "npu/answers/step_timer.h"
#include "npu/device/device.h"

namespace dllm {

/// The device that `options` name, with their changes. Errors: those of load_device().
Expected<npu::Device> requested_device(const LoadOptions& options);

/// How its steps are timed. Errors: kUsage for an unknown processor.
Expected<npu::TimerOptions> timer_options(const LoadOptions& options);

}  // namespace dllm
