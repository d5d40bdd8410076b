#pragma once

#include <array>
#include <deque>
#include <vector>

#include "npu_core/timing/clock.h"

namespace dllm::npu {

/// Time of one engine: every cycle up to `settled` is busy or stalled for one cause.
struct EngineTime {
  Cycle settled = 0;
  Cycle busy = 0;
  std::array<Cycle, kCauses> stall = {};

  Cycle total() const;
};

/// Attributes every cycle of every engine. An engine's idle time before an instruction was dispatched to it is
/// attributed to the front end's activity then: issuing for others, or stalled for its own cause. Time after the
/// dispatch has the cause that delayed the start longest.
///
/// The front end's stalls are a list of intervals, which each engine walks once: attribution costs O(1) per
/// instruction.
class Accounts {
 public:
  /// The front end dispatches at `at` (not before its last dispatch), after waiting for `cause` since it last issued.
  /// Returns the cycles that this dispatch cost: 0 if it shares the cycle with the previous one.
  Cycle dispatch(Cycle at, Cause cause);

  /// Engine `engine`: an instruction dispatched at `dispatched` starts at `start`, delayed by `cause` since then, and
  /// occupies the engine up to `end`. Returns the new busy cycles. Starts must not decrease.
  Cycle run(Engine engine, Cycle dispatched, Cycle start, Cycle end, Cause cause);

  /// Attributes everything left up to `total` as kDrain after the front end's last dispatch.
  void finish(Cycle total);

  /// Attributes the idle time of an engine with an empty queue, up to the front end's time. Keeps the list short.
  void settle(Engine engine) { starve(engine, times_[index_of(Engine::kFrontEnd)].settled); }
  bool long_list() const { return stalls_.size() > kLongList; }
  void shorten();

  const EngineTime& operator[](Engine engine) const { return times_[index_of(engine)]; }
  /// Serial issue and skipped regions add time directly.
  EngineTime& time(Engine engine) { return times_[index_of(engine)]; }

 private:
  static constexpr std::size_t kLongList = 1 << 16;
  struct Stall {
    Cycle begin, end;
    Cause cause;
  };
  void starve(Engine engine, Cycle until);

  std::array<EngineTime, kEngines> times_;
  std::deque<Stall> stalls_;
  std::uint64_t dropped_ = 0;                        ///< stalls removed from the front of the list
  std::array<std::uint64_t, kEngines> cursor_ = {};  ///< first stall that may still matter to an engine
};

}  // namespace dllm::npu
