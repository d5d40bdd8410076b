#include "npu_core/sampling/closed_form.h"

#include <algorithm>
#include <cmath>

#include "base/integers.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

std::int64_t kernel_latency(const LatencyKeys& t) { return t.vector_max + t.vector_add + t.vector_exp + t.vector_sum; }

}  // namespace

SerialSampling serial_sampling(const Device& device, const SamplingLoad& load) {
  const std::int64_t b = load.batch, l = load.block, t = load.steps, vlen = device.array.vlen;
  const std::int64_t n = ceil_div(load.vocab, vlen), rows = b * l * t, padded = n * vlen;
  const std::int64_t per_prefetch = device.prefetch.vector_rows;
  SerialSampling s;
  s.prefetches = t * (ceil_div(b * l * n, per_prefetch) + ceil_div(b, per_prefetch));
  s.vector = rows * n * kernel_latency(device.latency) + b * t * (l + 2 * l);
  // Row addresses beyond 18 bits take two instructions, twice per row.
  std::int64_t addresses = 0;
  for (std::int64_t i = 0; i < l; ++i) addresses += 2 * (3 * b * vlen + i * padded <= 262143 ? 1 : 2);
  s.scalar = rows * (3 * n + 7) + b * t * addresses + b * t * (l + 6) + 5 + (6 * b - 1) + 4 + 4 + 16 + 2 * s.prefetches;
  s.control = 2 * t + 2 * (b * t + 1);
  s.hidden = rows;
  s.bytes = s.prefetches * per_prefetch * (vlen + 64);
  return s;
}

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

double edge_sampling_cycles(const Device& device, const SamplingLoad& load, double prefetch_cycles, bool grow,
                            double gbps) {
  constexpr double kSetup = 7;  // address arithmetic per chunk load
  const std::int64_t vlen = device.array.vlen;
  const std::int64_t chunk = load.chunk > 0 ? load.chunk : load.vocab;
  const auto vectors = static_cast<double>(ceil_div(chunk, vlen));
  const double loads = grow ? 1 : std::ceil(vectors / static_cast<double>(device.prefetch.vector_rows));
  const double each = prefetch_cycles + (grow ? static_cast<double>(chunk) * 1.125 / gbps * device.clock.ghz : 0);
  const double per_chunk =
      2 * (kSetup + loads * (each + 2)) + vectors * static_cast<double>(kernel_latency(device.latency) + 3) + 2;
  return static_cast<double>(load.batch * load.block * load.steps) *
         (static_cast<double>(ceil_div(load.vocab, chunk)) * per_chunk + 9);
}

}  // namespace dllm::npu
