#pragma once

#include "npu_compiler/answers/step_timer.h"

namespace dllm::npu {

struct Device;

/// Joules of memory traffic that the host causes.
double traffic_joules(const Device& device, double bytes);

/// Of the host while one of its cores submits operators.
double dispatch_watts(const Device& device);

/// Adds what device and memory take while they wait, without the host. Steps on the host leave the device off.
void add_waiting_energy(const Device& device, StepProcessor processor, double seconds, VirtualEnergy& sum);

}  // namespace dllm::npu
