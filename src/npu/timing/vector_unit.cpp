#include "npu/timing/vector_unit.h"

#include <algorithm>

namespace dllm::npu {

VectorUnit::VectorUnit(const Device& device, const TimingOptions& options, PortCalendar& ports, Scoreboard& board)
    : ports_(ports),
      board_(board),
      chaining_(options.chaining),
      starts_((options.chaining ? options.vector_starts : 1) * static_cast<int>(device.array.vector_units)) {
  for (PipeState& pipe : pipes_) pipe.free.assign(static_cast<std::size_t>(device.array.vector_units), 0);
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

VectorUnit::Timing VectorUnit::place(const ResolvedAccesses& accesses, const Cost& cost, Earliest earliest) {
  PipeState& pipe = pipes_[static_cast<std::size_t>(cost.pipe)];
  Cycle& pipe_free = *std::min_element(pipe.free.begin(), pipe.free.end());
  earliest.need(last_start_ + (started_ >= starts_ ? 1 : 0), Cause::kVector);
  earliest.need(pipe_free, Cause::kVector);

  // Reads: from a latch as long as that holds the row, else from the SRAM.
  struct Source {
    Cell* cell;
    Latched latch;
    bool row;
  };
  std::array<Source, 8> sources;
  std::size_t count = 0;
  for (int i = 0; i < accesses.count; ++i) {
    const MemoryRange& range = accesses[i];
    if (range.access == Access::kRead) {
      board_.for_cells(range, [&](Cell& cell) {
        const Latched latch = range.space == Space::kVram ? latched(&cell) : Latched{};
        const bool early = latch.from <= latch.until;
        earliest.need(early ? std::min(latch.from, cell.ready) : cell.ready, cause_of(cell.writer));
        if (count < sources.size()) sources[count++] = {&cell, latch, range.space == Space::kVram};
      });
    } else {
      board_.for_cells(range, [&](Cell& cell) {
        earliest.need(cell.read_until, Cause::kBuffer);
        earliest.need(cell.ready - cost.latency, Cause::kBuffer);
      });
    }
  }
  const auto chained = [](const Source& s, Cycle at) { return s.latch.from <= at && at < s.latch.until; };
  for (std::size_t i = 0; i < count; ++i)
    if (!chained(sources[i], earliest.at)) earliest.need(sources[i].cell->ready, cause_of(sources[i].cell->writer));

  Timing timing;
  timing.cause = earliest.cause;
  Cycle start = earliest.at;
  for (std::size_t i = 0; i < count; ++i) {
    if (!sources[i].row) continue;
    if (chained(sources[i], earliest.at))
      ++chained_;
    else
      start = std::max(start, ports_.take(earliest.at));
  }
  if (start > earliest.at) timing.cause = Cause::kPorts;
  if (start > last_start_) {
    last_start_ = start;
    started_ = 0;
  }
  ++started_;
  pipe_free = start + cost.occupies;
  pipe_busy_[static_cast<std::size_t>(cost.pipe)] += cost.occupies;
  timing.start = start;
  timing.done = timing.ready = start + cost.latency;

  for (int i = 0; i < accesses.count; ++i) {
    const MemoryRange& range = accesses[i];
    if (range.access == Access::kRead) {
      board_.for_cells(range, [&](Cell& cell) {
        cell.read_until = std::max(cell.read_until, start + (cost.occupies > 1 ? cost.occupies : 0));
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
  return timing;
}

}  // namespace dllm::npu
