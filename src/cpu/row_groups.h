#pragma once

#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/packed_weights.h"

namespace dllm::cpu {

/// The rows of one value in groups, as products with packed floats read them (RowForm). q, k and v read one input:
/// groups are kept until another value comes, in every form that was requested.
class RowGroups {
 public:
  /// Rows of x[rows][k] for `weight`, in pairs if the set, the weight and the rows permit it; `value` identifies x
  /// until clear(). Throws std::bad_alloc.
  GroupedRows of(const KernelSet& kernels, ThreadPool& pool, const PackedWeight& weight, std::int64_t value,
                 const float* x, std::int64_t rows);
  /// Forgets all rows.
  void clear() {
    for (Slot& slot : slots_) slot.value = -1;
  }

 private:
  struct Slot {
    Buffer memory;
    std::int64_t value = -1;
    bool regular = false;
  };
  Slot& group(const KernelSet& kernels, ThreadPool& pool, RowForm form, std::int64_t value, const float* x,
              std::int64_t rows, std::int64_t k);

  std::array<Slot, 3> slots_;  ///< by form
};

}  // namespace dllm::cpu
