#include "npu_compiler/runtime/scratch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/integers.h"

namespace dllm::npu {
namespace {

struct Taken {
  std::int64_t begin, end;
};

/// The ranges of placed buffers that live at the same time as `buffer`, by address, as `placed` is.
std::vector<Taken> taken_by_others(std::span<const LiveBuffer> buffers, const std::vector<std::size_t>& placed,
                                   const std::vector<std::int64_t>& offsets, const LiveBuffer& buffer) {
  std::vector<Taken> taken;
  for (const std::size_t other : placed)
    if (buffers[other].first <= buffer.last && buffer.first <= buffers[other].last)
      taken.push_back({offsets[other], offsets[other] + buffers[other].bytes});
  return taken;
}

/// The start of the smallest gap that holds `bytes`; the end of all ranges if none does.
std::int64_t best_gap(const std::vector<Taken>& taken, std::int64_t bytes, std::int64_t alignment) {
  std::int64_t begin = 0, best = -1, least = std::numeric_limits<std::int64_t>::max();
  for (const Taken& one : taken) {
    const std::int64_t gap = one.begin - begin;
    if (gap >= bytes && gap < least) {
      least = gap;
      best = begin;
    }
    begin = std::max(begin, round_up(one.end, alignment));
  }
  return best < 0 ? begin : best;
}

}  // namespace

ScratchPlan share_scratch(std::span<const LiveBuffer> buffers, std::int64_t alignment) {
  std::vector<std::size_t> order(buffers.size()), placed;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return buffers[i].bytes; });
  ScratchPlan plan;
  plan.offsets.resize(buffers.size());
  for (const std::size_t i : order) {
    const std::vector<Taken> taken = taken_by_others(buffers, placed, plan.offsets, buffers[i]);
    plan.offsets[i] = best_gap(taken, buffers[i].bytes, alignment);
    plan.bytes = std::max(plan.bytes, plan.offsets[i] + buffers[i].bytes);
    const auto offset = [&](std::size_t one) { return plan.offsets[one]; };
    placed.insert(std::ranges::upper_bound(placed, plan.offsets[i], {}, offset), i);
  }
  return plan;
}

}  // namespace dllm::npu
