#pragma once

#include <cstdint>
#include <vector>

#include "npu_compiler/runtime/memory_plan.h"

namespace dllm::npu {

/// Time to make `bytes` visible in a staging slot: a mapping of its pages, or a copy.
double staging_seconds(const MemoryLimits& limits, std::int64_t bytes);

/// Times of a program whose staged tensors alternate between two slots.
///
/// One channel moves parts in the order of their use, also in advance for the next run. A part is moved when the
/// channel is free and the part before the last, which had the same slot, has been used; work on it begins when it has
/// arrived. An operator uses its staged tensors in sequence, part by part, and its time is divided among them in
/// proportion to their bytes.
class StagingTimeline {
 public:
  /// Borrows both. `slot_bytes`: of each of the two slots.
  StagingTimeline(const MemoryProgram& program, const MemoryLimits& limits, std::int64_t slot_bytes);

  /// Whether the tensor can be staged: its smallest part fits into a slot, it has at most 2^16 parts, and no operator
  /// writes it.
  bool can_stage(std::size_t tensor) const { return can_stage_[tensor]; }
  /// Seconds of all transfers of the tensor in a run, if it is staged.
  double transfer_seconds(std::size_t tensor) const;

  struct Times {
    double seconds = 0, first = 0;  ///< of a run that follows others, and of the first
    double transfer = 0;            ///< seconds of transfers in a run
  };
  /// `staged`: by tensor. Appends the parts of a later run to `parts` if not null.
  Times run(const std::vector<char>& staged, std::vector<StagedPart>* parts = nullptr) const;

 private:
  struct Use {  ///< of a tensor that could be staged
    std::int32_t tensor, op;
  };
  struct Cut {  ///< of a tensor into parts
    std::int64_t part_bytes = 0, count = 0, last_bytes = 0;
    double part_seconds = 0, last_seconds = 0;
  };

  const MemoryProgram& program_;
  std::vector<char> can_stage_;
  std::vector<Cut> cuts_;
  std::vector<std::int32_t> uses_of_;   ///< by tensor: how many operators read it
  std::vector<Use> uses_;               ///< in the order of the program
  std::vector<std::size_t> first_use_;  ///< by operator, into uses_; one more at the end
};

}  // namespace dllm::npu
