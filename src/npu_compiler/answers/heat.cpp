#include "npu_compiler/answers/heat.h"
#include "npu_core/device/device.h"

#include <cmath>

namespace dllm::npu {

Device throttled(const Device& device) {
  Device slow = device;
  const double ratio = device.thermal.throttled_ghz / device.clock.ghz;
  slow.clock.ghz = device.thermal.throttled_ghz;
  slow.derive();
  HostKeys& h = slow.host;
  for (double* rate : {&h.dequantize_gbps, &h.int8_gops, &h.f16_gflops, &h.f32_gflops}) *rate *= ratio;
  h.dispatch_us /= ratio;
  h.batch_us /= ratio;
  const double volts = slow.clock.voltage / device.clock.voltage;
  h.active_w = h.idle_w + (h.active_w - h.idle_w) * ratio * volts * volts;
  return slow;
}

void HeatModel::add(double joules, double seconds) {
  if (thermal_.sustained_w == 0 || seconds <= 0) return;
  const double resistance = thermal_.rise_k / thermal_.sustained_w;  // kelvin per watt
  const double settled = joules / seconds * resistance;
  rise_ = settled + (rise_ - settled) * std::exp(-seconds / (resistance * thermal_.capacity_j_per_k));
  decide();
}

void HeatModel::decide() {
  if (thermal_.sustained_w == 0) return;
  if (rise_ >= thermal_.rise_k)
    throttled_ = true;
  else if (rise_ <= thermal_.resume_k)
    throttled_ = false;
}

}  // namespace dllm::npu
