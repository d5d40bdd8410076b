#pragma once

#include <algorithm>
#include <cstdint>

namespace dllm::npu {

struct Device;

/// Block-wise sampling of B x L positions over a vocabulary, T times (d-PLENA's phases; DART Algorithm 2).
struct SamplingLoad {
  std::int64_t batch = 16;
  std::int64_t block = 32;
  std::int64_t vocab = 126976;  ///< already padded by the caller, if wanted
  std::int64_t steps = 1;
  std::int64_t chunk = 0;    ///< Vchunk: logits in the vector SRAM at once; 0: the whole row
  std::int64_t preload = 1;  ///< R of Eq. 4: batch items whose logits are loaded together
  enum Draws : std::uint8_t { kNone, kF64, kOther } draws = kNone;  ///< by V_RED_DRAW, in this precision
};

/// The published kernel, one instruction at a time (research/lab/npu-sampling.md); exact for vector and scalar cycles.
struct SerialSampling {
  std::int64_t vector = 0, scalar = 0, control = 0, hidden = 0;  ///< cycles
  std::int64_t prefetches = 0;                                   ///< H_PREFETCH_V
  std::int64_t bytes = 0;  ///< with the published kernel's single 64-byte scale block per vector
  std::int64_t compute() const { return vector + scalar + control + hidden; }
};
SerialSampling serial_sampling(const Device& device, const SamplingLoad& load);

/// Lower bounds with overlap: memory at peak; vector instructions pipelined; chained into two passes.
struct SamplingBounds {
  double bytes = 0;  ///< elements and all their scales
  double memory = 0;
  double pipelined = 0;  ///< four instructions per vector
  double chained = 0;    ///< max, then subtract-exp-sum
  double noise = 0;      ///< of draws, at the generators' rate
  double bound() const { return std::max({memory, chained, noise}); }
};
SamplingBounds sampling_bounds(const Device& device, const SamplingLoad& load);

/// On-chip memory by d-PLENA's Eq. 2 to 6, bytes: 4-byte integers, BF16.
struct SamplingSram {
  std::int64_t integer = 0, fp = 0, vector = 0;
};
SamplingSram sampling_sram(const Device& device, const SamplingLoad& load);

/// Cycles of edge mode, Vchunk < V, which reads the logits twice. `prefetch_cycles`: a blocking prefetch of fixed
/// length P vectors; `grow`: the prefetch is as long as the chunk and costs bytes / bandwidth on top.
double edge_sampling_cycles(const Device& device, const SamplingLoad& load, double prefetch_cycles, bool grow,
                            double gbps);

}  // namespace dllm::npu
