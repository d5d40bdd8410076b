#pragma once

#include <string>
#include <vector>

#include "cpu/kernels/peak.h"
#include "dllm/error.h"

namespace dllm::cpu {

/// This machine's limits with a number of threads, or a device's. A rate of 0 means that there is no such instruction.
struct Peaks {
  int threads = 0;  ///< 0: of a device, which does not depend on them
  struct Rate {
    double per_second = 0;  ///< operations: a multiply and an add are two
    std::string instruction;
  };
  Rate int8, bf16, f32;              ///< of vectors
  Rate int8_tiles, bf16_tiles;       ///< of matrix tiles
  Rate f16;                          ///< of a device's matrices
  double read_bytes_per_second = 0;  ///< from memory, one pass over much more than the caches hold
};

/// Measures with `threads` threads, in about 0.4 s: the fastest of several short runs each, because every disturbance
/// makes a run slower. Results are not cached: clocks, power limits and other load change. Memory: 256 MiB during the
/// measurement. Errors: kResource.
Expected<Peaks> measure_peaks(int threads);

/// The higher of each rate, so that a measured figure is compared with the best peak of that time.
void raise(Peaks& peaks, const Peaks& again);

}  // namespace dllm::cpu
