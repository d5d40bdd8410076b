#include "npu_core/timing/vector_unit.h"

#include <algorithm>

namespace dllm::npu {

VectorUnit::VectorUnit(const ArrayKeys& array, const TimingOptions& options, PortCalendar& ports, Scoreboard& board)
    : ports_(ports),
      board_(board),
      chaining_(options.chaining),
      starts_((options.chaining ? options.vector_starts : 1) * static_cast<int>(array.vector_units)) {
  for (PipeState& pipe : pipes_) pipe.free.assign(static_cast<std::size_t>(array.vector_units), 0);
}

VectorUnit::Latched VectorUnit::latched(const Cell* cell) const {
  Latched best;
  if (!chaining_ || cell->writer != Engine::kVector) return best;
  for (const PipeState& pipe : pipes_) {
    Cycle until = INT64_MAX;
    for (std::size_t back = 0; back < kHistory; ++back) {
      const Result& result = pipe.results[(pipe.newest + kHistory - back) % kHistory];
      if (result.cell == nullptr) break;
      if (result.cell == cell) {
        if (result.from > best.from) best = {result.from, until};  // the newest writer of the row
        break;
      }
      until = result.from;
    }
  }
  return best;
}

VectorUnit::Sources VectorUnit::wait_for_operands(const ResolvedAccesses& accesses, const Cost& cost,
                                                  Earliest& earliest) {
  // Reads: from a latch while it holds the row, else from the SRAM.
  Sources sources;
  for (int i = 0; i < accesses.count; ++i) {
    const MemoryRange& range = accesses[i];
    if (range.access == Access::kRead) {
      board_.for_cells(range, [&](Cell& cell) {
        const Latched latch = range.space == Space::kVram ? latched(&cell) : Latched{};
        const bool early = latch.from <= latch.until;
        earliest.need(early ? std::min(latch.from, cell.ready) : cell.ready, cause_of(cell.writer));
        if (sources.count < sources.list.size())
          sources.list[sources.count++] = {&cell, latch, range.space == Space::kVram};
      });
    } else {
      board_.for_cells(range, [&](Cell& cell) {
        earliest.need(cell.read_until, Cause::kBuffer);
        earliest.need(cell.ready - cost.latency, Cause::kBuffer);
      });
    }
  }
  for (const Source& source : sources.all())
    if (!source.chained(earliest.at)) earliest.need(source.cell->ready, cause_of(source.cell->writer));
  return sources;
}

Cycle VectorUnit::read_rows(const Sources& sources, Cycle at) {
  Cycle start = at;
  for (const Source& source : sources.all()) {
    if (!source.row) continue;
    if (source.chained(at))
      ++chained_;
    else
      start = std::max(start, ports_.take(at));
  }
  return start;
}

void VectorUnit::finish(const ResolvedAccesses& accesses, const Cost& cost, Timing& timing) {
  PipeState& pipe = pipes_[static_cast<std::size_t>(cost.pipe)];
  for (int i = 0; i < accesses.count; ++i) {
    const MemoryRange& range = accesses[i];
    if (range.access == Access::kRead) {
      board_.for_cells(range, [&](Cell& cell) {
        cell.read_until = std::max(cell.read_until, timing.start + (cost.occupies > 1 ? cost.occupies : 0));
      });
    } else {
      const bool row = range.space == Space::kVram;
      board_.for_cells(range, [&](Cell& cell) {
        cell.ready = row ? ports_.take(timing.done) + 1 : timing.done;
        cell.writer = Engine::kVector;
        timing.ready = std::max(timing.ready, cell.ready);
        if (row) {
          pipe.newest = (pipe.newest + 1) % kHistory;
          pipe.results[pipe.newest] = {&cell, timing.done};
        }
      });
    }
  }
}

VectorUnit::Timing VectorUnit::place(const ResolvedAccesses& accesses, const Cost& cost, Earliest earliest) {
  PipeState& pipe = pipes_[static_cast<std::size_t>(cost.pipe)];
  Cycle& pipe_free = *std::min_element(pipe.free.begin(), pipe.free.end());
  earliest.need(last_start_ + (started_ >= starts_ ? 1 : 0), Cause::kVector);
  earliest.need(pipe_free, Cause::kVector);
  const Sources sources = wait_for_operands(accesses, cost, earliest);

  Timing timing;
  timing.start = read_rows(sources, earliest.at);
  timing.cause = timing.start > earliest.at ? Cause::kPorts : earliest.cause;
  if (timing.start > last_start_) {
    last_start_ = timing.start;
    started_ = 0;
  }
  ++started_;
  pipe_free = timing.start + cost.occupies;
  pipe_busy_[static_cast<std::size_t>(cost.pipe)] += cost.occupies;
  timing.done = timing.ready = timing.start + cost.latency;
  finish(accesses, cost, timing);
  return timing;
}

}  // namespace dllm::npu
