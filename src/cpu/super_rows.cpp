#include "cpu/super_rows.h"

#include <algorithm>

#include "base/parallel.h"

namespace dllm::cpu {

SuperRows SuperRowStore::of(const KernelSet& kernels, ThreadPool& pool, std::int64_t value, const float* x,
                            std::int64_t rows, std::int64_t k) {
  if (value_ == value) return rows_;
  const std::int64_t groups = (rows + kSuperRows - 1) / kSuperRows, blocks = super_blocks(k);
  const std::size_t value_bytes = bytes_of<std::int8_t>(groups * SuperRows::group_bytes(k));
  const std::size_t scale_bytes = bytes_of<float>(groups * blocks * kSuperRows);
  memory_.reserve(value_bytes + (1 + kSuperPlanes) * scale_bytes);
  rows_.values = memory_.as<std::int8_t>();
  rows_.scales = reinterpret_cast<float*>(memory_.data() + value_bytes);
  rows_.sums = reinterpret_cast<std::int32_t*>(memory_.data() + value_bytes + scale_bytes);
  rows_.groups = groups;
  value_ = value;
  parallel_items(pool, groups * blocks, kSuperK * std::min(rows, kSuperRows), [&](std::int64_t task, int) {
    const std::int64_t group = task / blocks, first = group * kSuperRows;
    kernels.quantize_super(x + first * k, k, std::min(kSuperRows, rows - first), group, task % blocks, rows_);
  });
  return rows_;
}

}  // namespace dllm::cpu
