#include "npu_compiler/runtime/staging.h"

#include <algorithm>
#include <array>

#include "base/integers.h"
#include "base/to_size.h"

namespace dllm::npu {
namespace {

/// After this many runs the time per run is constant: at most two parts are moved in advance.
constexpr int kRuns = 3;
/// More parts than this mean that the slot is too small to be intended.
constexpr std::int64_t kMostParts = 1 << 16;

}  // namespace

double staging_seconds(const MemoryLimits& limits, std::int64_t bytes) {
  if (limits.copy_gbps > 0) return static_cast<double>(bytes) / (limits.copy_gbps * 1e9);
  return (limits.map_us + static_cast<double>(ceil_div(bytes, limits.page_bytes)) * limits.map_us_per_page) * 1e-6;
}

StagingTimeline::StagingTimeline(const MemoryProgram& program, const MemoryLimits& limits, std::int64_t slot_bytes)
    : program_(program),
      can_stage_(program.tensors.size()),
      cuts_(program.tensors.size()),
      uses_of_(program.tensors.size()) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const MemoryTensor& tensor = program.tensors[t];
    const std::int64_t granule = tensor.granule > 0 ? std::min(tensor.granule, tensor.bytes) : tensor.bytes;
    can_stage_[t] =
        tensor.lasting && granule <= slot_bytes && ceil_div(tensor.bytes, slot_bytes / granule * granule) <= kMostParts;
    if (!can_stage_[t]) continue;
    Cut& cut = cuts_[t];
    cut.part_bytes = std::min(tensor.bytes, slot_bytes / granule * granule);
    cut.count = ceil_div(tensor.bytes, cut.part_bytes);
    cut.last_bytes = tensor.bytes - (cut.count - 1) * cut.part_bytes;
    cut.part_seconds = staging_seconds(limits, cut.part_bytes);
    cut.last_seconds = staging_seconds(limits, cut.last_bytes);
  }
  for (const MemoryOp& op : program.ops)
    for (const std::int32_t t : op.writes) can_stage_[to_size(t)] = false;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    first_use_.push_back(uses_.size());
    for (const std::int32_t t : program.ops[o].reads)
      if (can_stage_[to_size(t)]) {
        uses_.push_back({t, static_cast<std::int32_t>(o)});
        ++uses_of_[to_size(t)];
      }
  }
  first_use_.push_back(uses_.size());
}

double StagingTimeline::transfer_seconds(std::size_t tensor) const {
  const Cut& cut = cuts_[tensor];
  return uses_of_[tensor] * (static_cast<double>(cut.count - 1) * cut.part_seconds + cut.last_seconds);
}

StagingTimeline::Times StagingTimeline::run(const std::vector<char>& staged, std::vector<StagedPart>* parts) const {
  Times times;
  double now = 0, channel = 0;
  std::array<double, 2> released = {0, 0};
  std::int32_t slot = 0;
  for (int round = 0; round < kRuns; ++round) {
    const bool last_round = round + 1 == kRuns;
    const double start = now;
    for (std::size_t o = 0; o < program_.ops.size(); ++o) {
      const double seconds = program_.ops[o].seconds;
      double bytes = 0;
      for (std::size_t u = first_use_[o]; u < first_use_[o + 1]; ++u)
        if (staged[to_size(uses_[u].tensor)])
          bytes += static_cast<double>(program_.tensors[to_size(uses_[u].tensor)].bytes);
      if (bytes == 0) {
        now += seconds;
        continue;
      }
      for (std::size_t u = first_use_[o]; u < first_use_[o + 1]; ++u) {
        const auto t = to_size(uses_[u].tensor);
        if (!staged[t]) continue;
        const Cut& cut = cuts_[t];
        for (std::int64_t p = 0; p < cut.count; ++p) {
          const bool last = p + 1 == cut.count;
          const std::int64_t size = last ? cut.last_bytes : cut.part_bytes;
          const double moved = std::max(channel, released[to_size(slot)]);
          channel = moved + (last ? cut.last_seconds : cut.part_seconds);
          const double begin = std::max(now, channel), waited = begin - now;
          now = begin + seconds * static_cast<double>(size) / bytes;
          released[to_size(slot)] = now;
          if (last_round) {
            times.transfer += channel - moved;
            if (parts != nullptr)
              parts->push_back({uses_[u].tensor, uses_[u].op, p * cut.part_bytes, size, slot, moved - start,
                                channel - start, begin - start, now - start, waited});
          }
          slot = 1 - slot;
        }
      }
    }
    if (round == 0) times.first = now;
    times.seconds = now - start;
  }
  return times;
}

}  // namespace dllm::npu
