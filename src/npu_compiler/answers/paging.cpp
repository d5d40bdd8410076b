#include "npu_compiler/answers/paging.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/human_bytes.h"
#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/runtime/staging.h"

namespace dllm::npu {
namespace {

/// Below this a lasting tensor (a gain, a bias) is no buffer of its own.
constexpr std::int64_t kSmallBytes = 1 << 16;
/// The first run fills the window; later ones repeat.
constexpr int kPagedRuns = 3;

class Pager {
 public:
  Pager(const MemoryProgram& program, const MemoryLimits& limits)
      : program_(program), limits_(limits), where_(program.tensors.size(), -1), used_(program.tensors.size(), 0) {}

  Expected<Paging> run() {
    DLLM_CHECK_OK(pin());
    for (int round = 0; round < kPagedRuns; ++round) {
      const std::int64_t pinned = paging_.pinned_bytes;
      paging_ = {.pinned_bytes = pinned};
      for (const MemoryOp& op : program_.ops) {
        ++now_;
        for (const std::int32_t t : op.reads) used_[to_size(t)] = now_;
        for (const std::int32_t t : op.reads)
          if (paged_[to_size(t)] && where_[to_size(t)] < 0) DLLM_CHECK_OK(map_tensor(to_size(t), op.name));
      }
    }
    return paging_;
  }

 private:
  Expected<void> pin() {
    std::vector<char> written(program_.tensors.size());
    for (const MemoryOp& op : program_.ops)
      for (const std::int32_t t : op.writes) written[to_size(t)] = 1;
    std::int64_t activations = 0, small = 0, state = 0;
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const MemoryTensor& tensor = program_.tensors[t];
      const bool weight = tensor.lasting && !written[t];
      paged_.push_back(weight && tensor.bytes >= kSmallBytes);
      if (!paged_.back())
        (!tensor.lasting ? activations : weight ? small : state) += round_up(tensor.bytes, limits_.alignment);
    }
    DLLM_CHECK_OK(pin_range(activations, "the activations"));
    DLLM_CHECK_OK(pin_range(small, "the small tensors"));
    // Keys and values may be split between layers.
    const std::int64_t most = limits_.mapping_bytes > 0 ? limits_.mapping_bytes : std::max<std::int64_t>(state, 1);
    for (std::int64_t left = state; left > 0; left -= most)
      DLLM_CHECK_OK(pin_range(std::min(left, most), "keys and values"));
    return {};
  }

  Expected<void> pin_range(std::int64_t bytes, const std::string& what) {
    if (bytes == 0) return {};
    const std::int64_t size = round_up(bytes, limits_.page_bytes);
    DLLM_CHECK_OK(check_size(size, what));
    const std::int64_t address = gap(size);
    if (address < 0 || !has_slot()) return failure(size, what);
    ranges_[address] = {size, -1};
    paging_.pinned_bytes += size;
    return {};
  }

  Expected<void> map_tensor(std::size_t t, const std::string& op) {
    const std::int64_t size = round_up(program_.tensors[t].bytes, limits_.page_bytes);
    const std::string what = fmt::format("{} of {}", program_.tensors[t].name, op);
    DLLM_CHECK_OK(check_size(size, what));
    for (;;) {
      const std::int64_t address = has_slot() ? gap(size) : -1;
      if (address >= 0) {
        ranges_[address] = {size, static_cast<std::int32_t>(t)};
        where_[t] = address;
        break;
      }
      if (!evict()) return failure(size, what);
    }
    paging_.seconds += staging_seconds(limits_, program_.tensors[t].bytes);
    ++paging_.mapped;
    return {};
  }

  bool has_slot() const {
    return limits_.mappings == 0 || static_cast<std::int64_t>(ranges_.size()) < limits_.mappings;
  }

  /// The lowest address of a gap; -1: there is none.
  std::int64_t gap(std::int64_t size) const {
    std::int64_t end = 0;
    for (const auto& [address, range] : ranges_) {
      if (address - end >= size) return end;
      end = address + range.bytes;
    }
    return limits_.window_bytes == 0 || limits_.window_bytes - end >= size ? end : -1;
  }

  /// Unmaps the least recently used buffer that the current operator does not read; false: there is none.
  bool evict() {
    auto oldest = ranges_.end();
    for (auto it = ranges_.begin(); it != ranges_.end(); ++it) {
      if (it->second.tensor < 0 || use_of(it->second) == now_) continue;
      if (oldest == ranges_.end() || use_of(it->second) < use_of(oldest->second)) oldest = it;
    }
    if (oldest == ranges_.end()) return false;
    where_[to_size(oldest->second.tensor)] = -1;
    ranges_.erase(oldest);
    ++paging_.evictions;
    return true;
  }

  Expected<void> check_size(std::int64_t size, const std::string& what) const {
    if (limits_.mapping_bytes == 0 || size <= limits_.mapping_bytes) return {};
    return Error{ErrorCode::kResource,
                 fmt::format("mapping failed: {}: {}, and the largest mapping has {}", what, text(size),
                             text(limits_.mapping_bytes)),
                 "the window of addresses", "run fewer rows, or with the memory runtime"};
  }

  Error failure(std::int64_t size, const std::string& what) const {
    std::int64_t used = 0;
    for (const auto& [address, range] : ranges_) used += range.bytes;
    return Error{ErrorCode::kResource,
                 has_slot() ? fmt::format("mapping failed: {}: {}, and no gap of the window has as much ({} are "
                                          "free in all)",
                                          what, text(size), text(limits_.window_bytes - used))
                            : fmt::format("mapping failed: {} would be more than {} mappings", what, limits_.mappings),
                 "the window of addresses", "run fewer rows, or with the memory runtime"};
  }

  static std::string text(std::int64_t size) { return human_bytes(static_cast<double>(size)); }

  struct Range {
    std::int64_t bytes = 0;
    std::int32_t tensor = -1;  ///< -1: pinned
  };
  std::int64_t use_of(const Range& range) const { return used_[to_size(range.tensor)]; }

  const MemoryProgram& program_;
  const MemoryLimits& limits_;
  std::vector<char> paged_;
  std::vector<std::int64_t> where_, used_;  ///< by tensor: address or -1; the operator that read it last
  std::map<std::int64_t, Range> ranges_;    ///< by address
  std::int64_t now_ = 0;
  Paging paging_;
};

}  // namespace

Expected<Paging> page_program(const MemoryProgram& program, const MemoryLimits& limits) {
  return Pager(program, limits).run();
}

}  // namespace dllm::npu
