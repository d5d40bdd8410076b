#include "cpu/super_rows.h"

#include <algorithm>

#include "base/parallel.h"

namespace dllm::cpu {

SuperRows place_super_rows(Buffer& memory, std::int64_t groups, std::int64_t k) {
  const std::int64_t blocks = super_blocks(k);
  const std::size_t value_bytes = bytes_of<std::int8_t>(groups * SuperRows::group_bytes(k));
  const std::size_t scale_bytes = bytes_of<float>(groups * blocks * kSuperRows);
  memory.reserve(value_bytes + (1 + kSuperPlanes) * scale_bytes);
  SuperRows rows;
  rows.values = memory.as<std::int8_t>();
  rows.scales = reinterpret_cast<float*>(memory.data() + value_bytes);
  rows.sums = reinterpret_cast<std::int32_t*>(memory.data() + value_bytes + scale_bytes);
  rows.groups = groups;
  return rows;
}

SuperRows SuperRowStore::of(const KernelSet& kernels, ThreadPool& pool, std::int64_t value, const float* x,
                            std::int64_t rows, std::int64_t k) {
  if (value_ == value) return rows_;
  const std::int64_t groups = (rows + kSuperRows - 1) / kSuperRows, blocks = super_blocks(k);
  rows_ = place_super_rows(memory_, groups, k);
  value_ = value;
  parallel_items(pool, groups * blocks, kSuperK * std::min(rows, kSuperRows), [&](std::int64_t task, int) {
    const std::int64_t group = task / blocks, first = group * kSuperRows;
    kernels.quantize_super(x + first * k, k, std::min(kSuperRows, rows - first), group, task % blocks, rows_);
  });
  return rows_;
}

}  // namespace dllm::cpu
