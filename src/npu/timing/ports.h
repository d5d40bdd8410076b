#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "npu/timing/clock.h"

namespace dllm::npu {

/// Records which cycles of the vector SRAM's ports are taken. A port moves one row per cycle, in either direction.
/// Older instructions reserve first, whatever their unit.
///
/// Cycles are stored in a ring; if reservations were further apart than its length, more than a million cycles, the
/// older one would be lost. The units' queues keep them far closer.
class PortCalendar {
 public:
  explicit PortCalendar(int ports) : ports_(static_cast<std::uint64_t>(ports)), slots_(kLength) {}

  /// Takes the first free port cycle at or after `from`.
  Cycle take(Cycle from) {
    for (Cycle cycle = std::max<Cycle>(from, 0);; ++cycle) {
      std::uint64_t& slot = slots_[static_cast<std::size_t>(cycle) & (kLength - 1)];
      const std::uint64_t epoch = static_cast<std::uint64_t>(cycle) / kLength + 1;
      if (slot >> 8 != epoch) slot = epoch << 8;
      if ((slot & 0xff) >= ports_) continue;
      ++slot;
      ++taken_;
      return cycle;
    }
  }
  /// Takes `count` cycles, at most one each, at or after `from`; returns the last.
  Cycle take_run(Cycle from, std::int64_t count) {
    Cycle last = from;
    for (std::int64_t i = 0; i < count; ++i) from = (last = take(from)) + 1;
    return last;
  }
  std::uint64_t taken() const { return taken_; }
  void add_taken(std::uint64_t count) { taken_ += count; }

 private:
  static constexpr std::size_t kLength = std::size_t{1} << 20;
  std::uint64_t ports_;
  std::uint64_t taken_ = 0;
  std::vector<std::uint64_t> slots_;  ///< epoch << 8 | taken
};

}  // namespace dllm::npu
