#pragma once

#include <cmath>
#include <cstdint>

#include "base/integers.h"
#include "npu_core/device/profile.h"
#include "npu_core/sampling/closed_form.h"

// What papers say that their sampling kernels take, in closed form: oracles for the simulated programs.

namespace dllm::npu::test {

/// The published kernel, one instruction at a time (research/lab/npu-sampling.md); exact for vector and scalar cycles.
struct SerialSampling {
  std::int64_t vector = 0, scalar = 0, control = 0, hidden = 0;  ///< cycles
  std::int64_t prefetches = 0;                                   ///< H_PREFETCH_V
  std::int64_t bytes = 0;  ///< with the published kernel's single 64-byte scale block per vector
};

inline std::int64_t kernel_latency(const LatencyKeys& t) {
  return t.vector_max + t.vector_add + t.vector_exp + t.vector_sum;
}

inline SerialSampling serial_sampling(const Device& device, const SamplingLoad& load) {
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

/// Cycles of edge mode, Vchunk < V, which reads the logits twice. `prefetch_cycles`: a blocking prefetch of fixed
/// length P vectors; `grow`: the prefetch is as long as the chunk and costs bytes / bandwidth on top.
inline double edge_sampling_cycles(const Device& device, const SamplingLoad& load, double prefetch_cycles, bool grow,
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

}  // namespace dllm::npu::test
