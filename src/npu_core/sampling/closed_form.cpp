#include "npu_core/sampling/closed_form.h"

#include <algorithm>

#include "base/integers.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {

SamplingBounds sampling_bounds(const Device& device, const SamplingLoad& load) {
  const auto elements = static_cast<double>(load.batch * load.block * load.steps) * static_cast<double>(load.vocab);
  const auto vectors =
      static_cast<double>(load.batch * load.block * load.steps * ceil_div(load.vocab, device.array.vlen));
  const auto bits = format_bits(device.numerics.logits);
  SamplingBounds bounds;
  bounds.bytes = elements * (bits ? *bits : 16) / 8;
  bounds.memory = bounds.bytes / device.memory_gbps() * device.clock.ghz;
  bounds.pipelined = 4 * vectors / static_cast<double>(device.array.vector_units);
  bounds.chained = bounds.pipelined / 2;
  if (load.draws != SamplingLoad::kNone)
    bounds.noise = vectors * static_cast<double>(device.array.draw_cycles(load.draws == SamplingLoad::kF64)) /
                   static_cast<double>(device.array.vector_units);
  return bounds;
}

SamplingSram sampling_sram(const Device& device, const SamplingLoad& load) {
  const std::int64_t bl = load.batch * load.block;
  SamplingSram sram;
  sram.integer = 4 * 2 * bl;
  sram.fp = 2 * std::max(load.block, device.array.vlen);
  const bool edge = load.chunk > 0 && load.chunk < load.vocab;
  sram.vector = 2 * (3 * bl + (edge ? load.chunk : load.vocab * load.block * load.preload));
  return sram;
}

}  // namespace dllm::npu
