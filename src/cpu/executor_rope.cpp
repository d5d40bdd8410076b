// Turning heads by positions, or by columns and lines of a grid.
#include <span>

#include "base/to_size.h"
#include "cpu/executor.h"

namespace dllm::cpu {

RopeTable& Executor::rope_table(const op::Rope& o) {
  for (RopeEntry& entry : ropes_)
    if (entry.serves(o)) return entry.table;
  const float* factors = vector(o.factors);
  ropes_.push_back(
      {o, RopeTable(o, factors == nullptr ? std::span<const float>() : std::span(factors, to_size(o.dims / 2)))});
  return ropes_.back().table;
}

void Executor::row(const op::Rope& o, std::int64_t r) {
  const RopeTable& table = rope_table(o);
  const std::int64_t n = width(o.x);
  const Position position = rows_[to_size(r)].position;
  if (o.grid) {
    const std::int32_t columns = rows_[to_size(r)].columns;
    for (std::int32_t slice = 0; slice < o.heads; ++slice) {
      const Position along = slice % 2 == 0 ? position % columns : position / columns;
      const std::int64_t at = r * n + std::int64_t{slice} * o.head_dim;
      kernels_.rope({1, o.head_dim, o.dims, o.layout == RopeLayout::kInterleaved, table.cos(along), table.sin(along)},
                    value(o.x) + at, value(o.out) + at);
    }
    return;
  }
  kernels_.rope(
      {o.heads, o.head_dim, o.dims, o.layout == RopeLayout::kInterleaved, table.cos(position), table.sin(position)},
      value(o.x) + r * n, value(o.out) + r * n);
}

}  // namespace dllm::cpu
