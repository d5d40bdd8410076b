#include "cpu/row_groups.h"

#include <algorithm>

#include "cpu/linear.h"

namespace dllm::cpu {

const float* RowGroups::of(const KernelSet& kernels, ThreadPool& pool, std::int64_t value, const float* x,
                           std::int64_t rows, std::int64_t k) {
  if (value_ == value) return memory_.as<float>();
  const std::int64_t groups = (rows + kRowGroup - 1) / kRowGroup, stride = row_group_stride(k);
  memory_.reserve(bytes_of<float>(groups * stride));
  value_ = value;
  auto* const to = memory_.as<float>();
  parallel_items(pool, groups, k * kRowGroup, [&](std::int64_t g, int) {
    kernels.interleave(x + g * kRowGroup * k, k, std::min(kRowGroup, rows - g * kRowGroup), to + g * stride);
  });
  return to;
}

}  // namespace dllm::cpu
