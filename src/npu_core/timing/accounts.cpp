#include "npu_core/timing/accounts.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace dllm::npu {

std::string_view name_of(Engine engine) {
  constexpr std::string_view kNames[] = {"front_end", "matrix",      "drain",       "vector",
                                         "scalar",    "load_matrix", "load_vector", "store"};
  return kNames[index_of(engine)];
}

std::string_view name_of(Cause cause) {
  constexpr std::string_view kNames[] = {"issue",          "memory", "matrix_result", "vector_result",
                                         "scalar_result",  "buffer", "vram_ports",    "queue_full",
                                         "transfer_slots", "fence",  "serial",        "end"};
  return kNames[index_of(cause)];
}

Cycle EngineTime::total() const { return std::accumulate(stall.begin(), stall.end(), busy); }

Cycle Accounts::dispatch(Cycle at, Cause cause) {
  EngineTime& front = times_[index_of(Engine::kFrontEnd)];
  if (at < front.settled) return 0;
  const Cycle before = front.settled;
  if (at > before) {
    stalls_.push_back({before, at, cause});
    front.stall[index_of(cause)] += at - before;
  }
  ++front.busy;
  front.settled = at + 1;
  return front.settled - before;
}

/// [settled, until) is attributed to the front end's activity at that time.
void Accounts::starve(Engine engine, Cycle until) {
  EngineTime& time = times_[index_of(engine)];
  if (until <= time.settled) return;
  Cycle stalled = 0;
  std::uint64_t& cursor = cursor_[index_of(engine)];
  for (cursor = std::max(cursor, dropped_); cursor - dropped_ < stalls_.size(); ++cursor) {
    const Stall& stall = stalls_[cursor - dropped_];
    if (stall.begin >= until) break;
    const Cycle overlap = std::min(stall.end, until) - std::max(stall.begin, time.settled);
    if (overlap > 0) {
      time.stall[index_of(stall.cause)] += overlap;
      stalled += overlap;
    }
    if (stall.end > until) break;
  }
  time.stall[index_of(Cause::kIssue)] += until - time.settled - stalled;
  time.settled = until;
}

Cycle Accounts::run(Engine engine, Cycle dispatched, Cycle start, Cycle end, Cause cause) {
  EngineTime& time = times_[index_of(engine)];
  if (start > time.settled) {
    starve(engine, std::min(start, dispatched));
    time.stall[index_of(cause)] += start - time.settled;
    time.settled = start;
  }
  const Cycle fresh = std::max<Cycle>(0, end - time.settled);
  time.busy += fresh;
  time.settled += fresh;
  return fresh;
}

void Accounts::shorten() {
  std::uint64_t first = dropped_ + stalls_.size();
  for (std::size_t e = 1; e < kEngines; ++e) first = std::min(first, std::max(cursor_[e], dropped_));
  stalls_.erase(stalls_.begin(), stalls_.begin() + static_cast<std::ptrdiff_t>(first - dropped_));
  dropped_ = first;
}

void Accounts::finish(Cycle total) {
  const Cycle issued = times_[index_of(Engine::kFrontEnd)].settled;
  for (std::size_t e = 0; e < kEngines; ++e) {
    EngineTime& time = times_[e];
    if (e != index_of(Engine::kFrontEnd)) starve(static_cast<Engine>(e), std::min(issued, total));
    assert(time.settled <= total);
    time.stall[index_of(Cause::kDrain)] += total - time.settled;
    time.settled = total;
    assert(time.total() == total);
  }
}

}  // namespace dllm::npu
