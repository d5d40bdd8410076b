#pragma once

#include <array>
#include <span>
#include <vector>

#include "npu_core/timing/latency.h"
#include "npu_core/timing/ports.h"
#include "npu_core/timing/scoreboard.h"

namespace dllm::npu {

/// Computes when vector instructions start: in order, up to `vector_starts` per cycle on different pipes.
///
/// Chaining: the newest result of a pipe stays in its output latch until the pipe's next result, and the other pipes
/// may read it there in the cycle in which it appears. Everything else is read from the vector SRAM through a port,
/// from the cycle after the row was written. Results are always written: chaining saves only reads.
class VectorUnit {
 public:
  VectorUnit(const ArrayKeys& array, const TimingOptions& options, PortCalendar& ports, Scoreboard& board);

  struct Timing {
    Cycle start = 0;
    Cycle done = 0;   ///< registers may be read; a row is in its latch
    Cycle ready = 0;  ///< the written rows may be read from the vector SRAM
    Cause cause = Cause::kIssue;
  };

  /// Schedules the instruction. `earliest` holds the other constraints: dispatch, registers. Cells of all its ranges
  /// are valid (no transfer is filling them).
  Timing place(const ResolvedAccesses& accesses, const Cost& cost, Earliest earliest);

  /// Adds the number of chained reads, for statistics.
  std::uint64_t chained() const { return chained_; }
  Cycle pipe_busy(Pipe pipe) const { return pipe_busy_[static_cast<std::size_t>(pipe)]; }

 private:
  struct Result {
    const Cell* cell = nullptr;
    Cycle from = 0;
  };
  static constexpr std::size_t kHistory = 8;  ///< results of a pipe, newest last; older ones have left the latch
  struct PipeState {
    std::vector<Cycle> free;  ///< per vector context
    std::array<Result, kHistory> results = {};
    std::size_t newest = 0;
  };
  /// [from, until) in which a latch holds the cell's value; from > until: never.
  struct Latched {
    Cycle from = 1, until = 0;
  };
  Latched latched(const Cell* cell) const;

  /// A cell that the instruction reads.
  struct Source {
    Cell* cell = nullptr;
    Latched latch;
    bool row = false;  ///< of vector SRAM: read through a port, unless it is chained
    bool chained(Cycle at) const { return latch.from <= at && at < latch.until; }
  };
  struct Sources {
    std::array<Source, 8> list;
    std::size_t count = 0;
    std::span<const Source> all() const { return {list.data(), count}; }
  };
  /// Raises `earliest` until operands are ready and destinations are free.
  Sources wait_for_operands(const ResolvedAccesses& accesses, const Cost& cost, Earliest& earliest);
  /// The first cycle from `at` on in which the rows that are not chained can be read.
  Cycle read_rows(const Sources& sources, Cycle at);
  /// Records the instruction's reads and writes; completes `timing`, whose start is known.
  void finish(const ResolvedAccesses& accesses, const Cost& cost, Timing& timing);

  PortCalendar& ports_;
  Scoreboard& board_;
  bool chaining_;
  int starts_, started_ = 0;  ///< allowed per cycle; in the cycle `last_start_`
  Cycle last_start_ = 0;
  std::array<PipeState, kPipes> pipes_;
  std::array<Cycle, kPipes> pipe_busy_ = {};
  std::uint64_t chained_ = 0;
};

}  // namespace dllm::npu
