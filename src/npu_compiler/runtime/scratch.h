#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dllm::npu {

/// A buffer and its lifetime: from operator `first` to operator `last`, both included.
struct LiveBuffer {
  std::int64_t bytes = 0;
  std::int32_t first = 0, last = 0;
};

struct ScratchPlan {
  std::vector<std::int64_t> offsets;  ///< one per buffer, multiples of the alignment
  std::int64_t bytes = 0;             ///< of all
};

/// Offsets at which no two buffers that live at the same time overlap: the largest first, each into the smallest gap
/// between those that live with it (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
/// arXiv 2001.03288, greedy by size).
ScratchPlan share_scratch(std::span<const LiveBuffer> buffers, std::int64_t alignment);

}  // namespace dllm::npu
