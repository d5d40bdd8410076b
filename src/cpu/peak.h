#pragma once

#include <string>
#include <vector>

#include "cpu/kernels/peak.h"
#include "dllm/error.h"

namespace dllm::cpu {

/// What this machine can do at most with a number of threads. A rate of 0 means that it has no such instruction.
struct Peaks {
  int threads = 0;
  struct Rate {
    double per_second = 0;  ///< operations: a multiply and an add are two
    std::string instruction;
  };
  Rate int8, bf16, f32;
  double read_bytes_per_second = 0;  ///< from memory, one pass over much more than the caches hold
};

/// Measures for `threads` threads, in about 0.4 s: the fastest of several short runs each, because whatever disturbs a
/// run makes it slower. Nothing is kept from one call to the next: clocks, power limits and neighbours change. Memory:
/// 256 MiB while it runs. Errors: kResource.
Expected<Peaks> measure_peaks(int threads);

/// The higher of each rate: whatever is measured beside a peak should be bounded by the best of its time.
void raise(Peaks& peaks, const Peaks& again);

}  // namespace dllm::cpu
