#include "npu_compiler/answers/answer_energy.h"

#include "npu_core/device/device.h"
#include "npu_core/device/energy.h"

namespace dllm::npu {

double traffic_joules(const Device& device, double bytes) {
  const dram::DramCosts costs = device.memory_costs();
  return bytes * (costs.read_pj_per_byte + costs.io_pj_per_byte) * 1e-12;
}

double dispatch_watts(const Device& device) {
  const HostKeys& h = device.host;
  return h.cores == 0 ? 0 : h.idle_w + (h.active_w - h.idle_w) / static_cast<double>(h.cores);
}

void add_waiting_energy(const Device& device, StepProcessor processor, double seconds, VirtualEnergy& sum) {
  const StepEnergy waiting = step_energy(device, {}, seconds);
  sum.dram += waiting.dram_background;
  if (processor == StepProcessor::kDevice) sum.standby += waiting.phy + waiting.fixed;
}

}  // namespace dllm::npu
