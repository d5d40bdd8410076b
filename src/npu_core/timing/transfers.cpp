#include "npu_core/timing/transfers.h"

#include <algorithm>
#include <cmath>

namespace dllm::npu {
namespace {

constexpr Engine kDma[] = {Engine::kLoadMatrix, Engine::kLoadVector, Engine::kStore};
constexpr std::uint32_t kScaleBlock = 64;  ///< bytes, of the published kernel's scale fetch

}  // namespace

Transfers::Transfers(dram::MemorySystem& memory, PortCalendar& ports, PortCalendar* matrix_port, Accounts& accounts,
                     const DmaLimits& limits)
    : memory_(memory), ports_(ports), matrix_port_(matrix_port), accounts_(accounts), limits_(limits) {}

std::uint32_t Transfers::new_piece() {
  if (free_.empty()) {
    pieces_.emplace_back();
    return static_cast<std::uint32_t>(pieces_.size() - 1);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  pieces_[index].cell = nullptr;
  pieces_[index].previous = 0;
  pieces_[index].port = pieces_[index].resolved = false;
  pieces_[index].matrix_rows = 0;
  pieces_[index].packed = 0;
  pieces_[index].done = 0;
  return index;
}

std::uint64_t Transfers::bytes_of(const MemoryRange& range, std::uint32_t rows, bool scales) const {
  return std::uint64_t{rows} * (scales && limits_.scale64 ? kScaleBlock : range.length);
}

/// Submits rows [first, first + rows) of a range; runs that are contiguous in memory are one request.
void Transfers::send(const MemoryRange& range, std::uint32_t first, std::uint32_t rows, bool scales, Cycle at,
                     std::vector<dram::TransferId>& ids) {
  const dram::Access access = range.access == Access::kWrite ? dram::Access::kWrite : dram::Access::kRead;
  for (std::uint32_t row = first; row < first + rows;) {
    const std::uint64_t begin = range.base + row * range.row_stride;
    std::uint64_t length = range.length;
    ++row;
    if (scales && limits_.scale64) {
      length = std::min<std::uint64_t>(kScaleBlock, memory_.bytes() - begin);
    } else {
      for (; row < first + rows && range.row_stride == range.length; ++row) length += range.length;
    }
    ids.push_back(memory_.submit_unchecked(begin, length, access, at));
  }
  bytes_[access == dram::Access::kWrite ? 1 : 0] += bytes_of(range, rows, scales);
}

void Transfers::submit_held(Cycle until) {
  for (; !held_.empty() && held_.top().at <= until; held_.pop()) {
    const Held& held = held_.top();
    Piece& piece = pieces_[held.piece];
    send(held.range, held.first, held.rows, held.scales, held.at, piece.ids);
    --piece.held;
  }
}

void Transfers::resolve(std::uint32_t index) {
  Piece& piece = pieces_[index];
  if (piece.resolved) return;
  while (piece.held > 0) submit_held(held_.top().at);
  while (!piece.ids.empty()) {
    // Held transfers may arrive before this one is complete.
    const auto done =
        held_.empty() ? memory_.wait(piece.ids.back()) : memory_.wait_before(piece.ids.back(), held_.top().at);
    if (!done) {
      submit_held(held_.top().at);
      continue;
    }
    piece.done = std::max(piece.done, *done);
    piece.ids.pop_back();
  }
  if (piece.port) piece.done = ports_.take(piece.done) + 1;
  if (piece.packed > 0) piece.done = unpack(piece.done, piece.packed);
  if (piece.matrix_rows > 0) piece.done = matrix_port_->take_run(piece.done, piece.matrix_rows) + 1;
  piece.resolved = true;
}

Cycle Transfers::unpack(Cycle from, std::uint64_t bytes) {
  if (!(limits_.unpacked_per_cycle > 0)) return from;
  const double exact = static_cast<double>(bytes) / limits_.unpacked_per_cycle + unpack_rest_,
               whole = std::floor(exact);
  unpack_rest_ = exact - whole;
  return unpacker_.take_run(from, static_cast<std::int64_t>(whole)) + 1;
}

Cycle Transfers::arrive(Cell& cell) {
  for (std::uint32_t i = cell.transfer; i != 0; i = pieces_[i].previous) {
    resolve(i);
    cell.ready = std::max(cell.ready, pieces_[i].done);
  }
  cell.transfer = 0;
  return cell.ready;
}

Cycle Transfers::complete(Record& record) {
  Cycle done = record.request.start;
  for (const std::uint32_t index : record.pieces) {
    Piece& piece = pieces_[index];
    if (piece.cell != nullptr && !piece.resolved) arrive(*piece.cell);
    resolve(index);
    done = std::max(done, pieces_[index].done);
  }
  return done;
}

/// Records completed transfers at the front of an engine's list.
void Transfers::retire(Engine engine) {
  std::deque<Record>& records = in_flight(engine);
  while (!records.empty()) {
    Record& record = records.front();
    const auto resolved = [this](std::uint32_t index) { return pieces_[index].resolved; };
    if (!std::all_of(record.pieces.begin(), record.pieces.end(), resolved)) return;
    const Cycle done = complete(record);
    const TransferRequest& r = record.request;
    const Cycle busy = accounts_.run(engine, r.dispatched, r.start, done, r.cause);
    finished_.push_back({r, done, record.bytes, busy});
    free_.insert(free_.end(), record.pieces.begin(), record.pieces.end());  // resolved pieces are in no cell's chain
    records.pop_front();
  }
}

Cycle Transfers::slot_free(Engine engine) {
  retire(engine);
  std::deque<Record>& records = in_flight(engine);
  if (records.size() < limits_.outstanding) return 0;
  const Cycle done = complete(records.front());
  retire(engine);
  return done;
}

Cycle Transfers::fence(std::uint32_t tag) {
  Cycle done = 0;
  for (const Engine engine : kDma) {
    for (Record& record : in_flight(engine))
      if (tag == 0 || record.request.tag == tag) done = std::max(done, complete(record));
    retire(engine);
  }
  return done;
}

Cycle Transfers::after_stores(const ResolvedAccesses& accesses) {
  Cycle done = 0;
  for (Record& record : in_flight(Engine::kStore))
    for (int i = 0; i < accesses.count; ++i) {
      const MemoryRange& range = accesses[i];
      if (range.space != Space::kHbm) continue;
      for (std::size_t k = 0; k < 2; ++k)
        if (range.base < record.high[k] && record.low[k] < range.end()) done = std::max(done, complete(record));
    }
  return done;
}

/// Codes and scales of packed weights as one stream: a transfer moves whole tiles, so both together are contiguous.
ResolvedAccesses Transfers::streams(const ResolvedAccesses& accesses, bool packed) {
  if (!packed) return accesses;
  ResolvedAccesses joined = accesses;
  MemoryRange& stream = joined.ranges[0];
  stream.length += accesses[1].length;
  stream.row_stride = stream.length;
  stream.rows = accesses[0].runs();
  stream.groups = 1;
  joined.ranges[1] = accesses[2];
  joined.count = 2;
  return joined;
}

void Transfers::submit(const TransferRequest& request, const ResolvedAccesses& resolved, const MemoryRange& target,
                       Scoreboard& board) {
  const ResolvedAccesses accesses = streams(resolved, request.packed);
  Record& record = in_flight(request.engine).emplace_back();
  record.request = request;
  const bool store = request.engine == Engine::kStore;
  // One piece per cell: rows that become valid together.
  const std::uint32_t group =
      request.engine == Engine::kLoadMatrix
          ? std::max<std::uint32_t>(
                1, static_cast<std::uint32_t>((std::uint64_t{1} << board.shift(Space::kMram)) / target.length))
          : 1;
  std::size_t stream = 0;
  for (int i = 0; i < accesses.count; ++i)
    if (accesses[i].space == Space::kHbm && store && stream < 2) {
      record.low[stream] = accesses[i].base;
      record.high[stream++] = accesses[i].end();
    }
  for (std::uint32_t row = 0; row < target.rows;) {
    const std::uint64_t address = target.base + row * target.row_stride;
    // Up to the end of the cell that contains the row.
    std::uint32_t rows = 1;
    if (group > 1) rows = group - static_cast<std::uint32_t>(address / target.length % group);
    rows = std::min(rows, target.rows - row);
    const std::uint32_t index = new_piece();
    bool scales = false;
    for (int i = 0; i < accesses.count; ++i)
      if (accesses[i].space == Space::kHbm) {
        held_.push({request.start, ++order_, index, accesses[i], row, rows, scales});
        ++pieces_[index].held;
        record.bytes += bytes_of(accesses[i], rows, scales);
        if (request.packed) pieces_[index].packed += bytes_of(accesses[i], rows, scales);
        scales = true;
      }
    if (!store) {
      Cell& cell = board.at(target.space, address);
      pieces_[index].cell = &cell;
      pieces_[index].previous = cell.transfer;
      pieces_[index].port = target.space == Space::kVram;
      if (target.space == Space::kMram && matrix_port_ != nullptr) pieces_[index].matrix_rows = rows;
      cell.transfer = index;
      cell.writer = request.engine;
    }
    record.pieces.push_back(index);
    row += rows;
  }
  if (const double rate = limits_.bytes_per_cycle; rate > 0)
    free_at_ = std::max(free_at_, static_cast<double>(request.start)) + static_cast<double>(record.bytes) / rate;
}

Cycle Transfers::finish() {
  Cycle last = fence(0);
  for (const Engine engine : kDma) last = std::max(last, accounts_[engine].settled);
  return last;
}

bool Transfers::arrived(const Piece& piece, Cycle by) {
  return piece.held == 0 && std::ranges::all_of(piece.ids, [&](dram::TransferId id) { return memory_.done(id, by); });
}

void Transfers::settle() {
  const Cycle now = std::max<Cycle>(0, accounts_[Engine::kFrontEnd].settled - 1);  // later dispatches arrive no earlier
  submit_held(now);
  for (const Engine engine : kDma) {
    for (Record& record : in_flight(engine)) {
      // What has arrived stays: a transfer of thousands of pieces is asked about many times.
      while (record.arrived < record.pieces.size() && arrived(pieces_[record.pieces[record.arrived]], now))
        ++record.arrived;
      if (record.arrived < record.pieces.size()) break;
      complete(record);
    }
    retire(engine);
    if (in_flight(engine).empty()) accounts_.settle(engine);
  }
}

Cycle Transfers::blocking(const ResolvedAccesses& resolved, Cycle now, bool packed, std::uint64_t& bytes) {
  const ResolvedAccesses accesses = streams(resolved, packed);
  std::vector<dram::TransferId> ids;
  bool scales = false;
  for (int i = 0; i < accesses.count; ++i)
    if (accesses[i].space == Space::kHbm) {
      send(accesses[i], 0, accesses[i].rows, scales, now, ids);
      bytes += bytes_of(accesses[i], accesses[i].rows, scales);
      scales = true;
    }
  Cycle done = now;
  for (const dram::TransferId id : ids) done = std::max(done, memory_.wait(id));
  return packed ? unpack(done, bytes) : done;
}

}  // namespace dllm::npu
