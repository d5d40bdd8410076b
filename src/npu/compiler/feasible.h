#pragma once

#include <vector>

#include "npu/analytic/workload.h"
#include "npu/device/device.h"

namespace dllm::npu {

/// What a model that is laid out for a device takes of its memory, in bytes.
struct MemoryNeed {
  std::uint64_t weights = 0;
  std::uint64_t cache = 0;  ///< of a sequence
  std::uint64_t room = 0;   ///< for weights and caches
};

/// Lays the model out as the compiler does: heads and blocks that the array cannot take, matrices that no SRAM holds,
/// weights beyond the memory are its errors, in its words. Formats that programs do not have (q4_0, fp16) count as the
/// nearest that they have. `positions`: of a sequence.
Expected<MemoryNeed> memory_need(const Device& device, const ModelShape& shape, std::int64_t positions);

/// Errors: caches that do not fit next to the weights.
Expected<void> check_caches(const MemoryNeed& need, std::int64_t sequences);

/// Sequences of each part in which compile_split() runs a refinement step of the workload, logits going to memory; one
/// part if the step fits at once. Two short models of which one has a layer more tell what all layers keep in vector
/// SRAM; only where that does not fit is the whole model compiled. Errors: of compile_step() for a single sequence, in
/// its words.
Expected<std::vector<std::int64_t>> step_parts(const Device& device, const ModelShape& shape, const Workload& workload);

/// All three, for the models of time that run no program: the parts, or why the device cannot run the workload.
Expected<std::vector<std::int64_t>> check_feasible(const Device& device, const ModelShape& shape,
                                                   const Workload& workload);

}  // namespace dllm::npu
