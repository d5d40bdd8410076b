#pragma once

#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/packed_weights.h"

namespace dllm::cpu {

/// The form in which the set multiplies regular rows with this weight's packed floats fastest; kFloats: in no form but
/// any_form().
RowForm fast_form(const KernelSet& kernels, const PackedWeight& weight);
/// The form for any rows.
RowForm any_form(const PackedWeight& weight);

/// The rows of one value in groups, as products with packed floats read them (RowForm). q, k and v read one input:
/// groups are kept until another value comes, in every form that was requested.
class RowGroups {
 public:
  /// Rows of x[rows][k] for `weight`, in pairs or tiles if the set, the weight and the rows permit it; `value`
  /// identifies x until clear(). Throws std::bad_alloc.
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

  std::array<Slot, 6> slots_;  ///< by form
};

}  // namespace dllm::cpu
