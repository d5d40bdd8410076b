#include "cpu/row_groups.h"

#include <algorithm>
#include <atomic>

#include "base/parallel.h"

namespace dllm::cpu {

RowForm fast_form(const KernelSet& kernels, const PackedWeight& weight) {
  const bool bf16 = weight.format->type == TensorType::kBF16;
  if (weight.in_steps && !bf16) return kernels.bf16_tiles ? RowForm::kSplitTiles : RowForm::kFloats;
  if (!bf16 || !weight.regular) return RowForm::kFloats;
  if (weight.in_steps) return kernels.bf16_tiles ? RowForm::kTiles : RowForm::kFloats;
  return weight.k % 2 == 0 && kernels.bf16_dots() ? RowForm::kPairs : RowForm::kFloats;
}

RowForm any_form(const PackedWeight& weight) {
  if (weight.format->type == TensorType::kBF16) return RowForm::kRounded;
  return weight.in_steps ? RowForm::kSplit : RowForm::kFloats;
}

RowGroups::Slot& RowGroups::group(const KernelSet& kernels, ThreadPool& pool, RowForm form, std::int64_t value,
                                  const float* x, std::int64_t rows, std::int64_t k) {
  Slot& slot = slots_[static_cast<std::size_t>(form)];
  if (slot.value == value) return slot;
  const std::int64_t size = rows_of_group(form), groups = (rows + size - 1) / size, stride = group_stride(form, k);
  slot.memory.reserve(bytes_of<float>(groups * stride));
  slot.value = value;
  auto* const to = slot.memory.as<float>();
  std::atomic<bool> regular{true};
  parallel_items(pool, groups, k * size, [&](std::int64_t g, int) {
    const std::int64_t first = g * size, count = std::min(size, rows - first);
    if (!kernels.interleave(form, x + first * k, k, count, to + g * stride))
      regular.store(false, std::memory_order_relaxed);
  });
  slot.regular = regular;
  return slot;
}

GroupedRows RowGroups::of(const KernelSet& kernels, ThreadPool& pool, const PackedWeight& weight, std::int64_t value,
                          const float* x, std::int64_t rows) {
  if (const RowForm fast = fast_form(kernels, weight); fast != RowForm::kFloats) {
    Slot& own = group(kernels, pool, fast, value, x, rows, weight.k);
    if (own.regular) return {own.memory.as<float>(), fast};
  }
  const RowForm form = any_form(weight);
  return {group(kernels, pool, form, value, x, rows, weight.k).memory.as<float>(), form};
}

}  // namespace dllm::cpu
