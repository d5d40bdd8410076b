#include "cpu/row_groups.h"

#include <algorithm>
#include <atomic>

#include "base/parallel.h"

namespace dllm::cpu {

RowGroups::Slot& RowGroups::group(const KernelSet& kernels, ThreadPool& pool, RowForm form, std::int64_t value,
                                  const float* x, std::int64_t rows, std::int64_t k) {
  Slot& slot = slots_[static_cast<std::size_t>(form)];
  if (slot.value == value) return slot;
  const std::int64_t groups = (rows + kRowGroup - 1) / kRowGroup, stride = row_group_stride(k);
  slot.memory.reserve(bytes_of<float>(groups * stride));
  slot.value = value;
  auto* const to = slot.memory.as<float>();
  std::atomic<bool> regular{true};
  parallel_items(pool, groups, k * kRowGroup, [&](std::int64_t g, int) {
    const std::int64_t first = g * kRowGroup, count = std::min(kRowGroup, rows - first);
    if (!kernels.interleave(form, x + first * k, k, count, to + g * stride))
      regular.store(false, std::memory_order_relaxed);
  });
  slot.regular = regular;
  return slot;
}

GroupedRows RowGroups::of(const KernelSet& kernels, ThreadPool& pool, const PackedWeight& weight, std::int64_t value,
                          const float* x, std::int64_t rows) {
  const bool bf16 = weight.format->type == TensorType::kBF16;
  if (bf16 && weight.regular && weight.k % 2 == 0 && kernels.bf16_dots()) {
    Slot& pairs = group(kernels, pool, RowForm::kPairs, value, x, rows, weight.k);
    if (pairs.regular) return {pairs.memory.as<float>(), RowForm::kPairs};
  }
  const RowForm form = bf16 ? RowForm::kRounded : RowForm::kFloats;
  return {group(kernels, pool, form, value, x, rows, weight.k).memory.as<float>(), form};
}

}  // namespace dllm::cpu
