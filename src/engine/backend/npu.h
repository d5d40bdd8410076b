#pragma once

#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/backends.h"
#include "engine/second_path_runner.h"
#include "npu_compiler/answers/step_timer.h"
#include "npu_core/device/readers.h"

namespace dllm {

namespace npu {
class TimedBackend;
struct Device;
}  // namespace npu

/// What answers read of the device; without `values`, which a benchmark of recorded answers does not compute.
npu::VerbUse device_use(const LoadOptions& options, bool values);

/// The device that `options` name, with their changes. Errors: those of load_device(); kUsage for changes of keys that
/// `use` does not read.
Expected<npu::Device> requested_device(const LoadOptions& options, const npu::VerbUse& use);

/// How its steps are timed, for options that check_load() has accepted. Errors: kUsage (steps of the host are not
/// simulated).
Expected<npu::TimerOptions> timer_options(const LoadOptions& options);

/// RunningBackend::second_path on the host next to a device. `timed` is borrowed; `copy_rows`: of the backend that
/// computes its values.
std::function<Expected<std::unique_ptr<PassRunner>>(int)> second_path_on_host(const npu::Device& device,
                                                                              npu::TimedBackend& timed,
                                                                              ThreadedPassRunner::CopyRows copy_rows);

}  // namespace dllm
