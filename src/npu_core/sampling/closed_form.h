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

}  // namespace dllm::npu
