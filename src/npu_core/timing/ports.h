#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "npu_core/timing/clock.h"

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

 private:
  static constexpr std::size_t kLength = std::size_t{1} << 20;
  std::uint64_t ports_;
  std::uint64_t taken_ = 0;
  std::vector<std::uint64_t> slots_;  ///< epoch << 8 | taken
};

/// PortCalendar of one port for long runs: it keeps the taken intervals, so that a run behind a queue of others does
/// not pass over each of their cycles. It forgets as much as that calendar does.
class RunCalendar {
 public:
  /// Takes the first `count` free cycles at or after `from`; returns the last, or `from` if there are none to take.
  Cycle take_run(Cycle from, std::int64_t count) {
    Cycle last = from;
    Cycle at = std::max<Cycle>(from, 0);
    auto next = taken_.upper_bound(at);  // the first interval after `at`
    if (next != taken_.begin()) at = std::max(at, std::prev(next)->second);
    while (count > 0) {
      const std::int64_t room = next == taken_.end() ? count : std::min<std::int64_t>(count, next->first - at);
      next = join(next, at, at + room);
      last = at + room - 1;
      count -= room;
      at = std::prev(next)->second;
    }
    return last;
  }

 private:
  using Intervals = std::map<Cycle, Cycle>;  ///< begin, end; they do not touch

  /// Adds an interval before `next`; returns the interval after it.
  Intervals::iterator join(Intervals::iterator next, Cycle begin, Cycle end) {
    constexpr Cycle kKept = Cycle{1} << 20;
    while (!taken_.empty() && taken_.begin() != next && taken_.begin()->second + kKept < end)
      taken_.erase(taken_.begin());
    const bool touches_next = next != taken_.end() && next->first == end;
    if (touches_next) end = next->second;
    if (next != taken_.begin() && std::prev(next)->second == begin)
      std::prev(next)->second = end;
    else
      taken_.emplace_hint(next, begin, end);
    return touches_next ? taken_.erase(next) : next;
  }

  Intervals taken_;
};

}  // namespace dllm::npu
