#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "npu_core/dram/memory_system.h"
#include "npu_core/timing/accounts.h"
#include "npu_core/timing/ports.h"
#include "npu_core/timing/scoreboard.h"

namespace dllm::npu {

/// One H_* instruction on its way to the DMA engines.
struct TransferRequest {
  Engine engine = Engine::kLoadVector;
  std::uint32_t tag = 0;
  std::uint32_t region = 0;
  Cycle dispatched = 0, start = 0;
  Cause cause = Cause::kIssue;  ///< cause of the delay since the dispatch
  bool packed = false;          ///< the vector contexts unpack the rows before they are valid
};

/// A finished transfer, for statistics and traces.
struct FinishedTransfer {
  TransferRequest request;
  Cycle done = 0;
  std::uint64_t bytes = 0;
  Cycle busy = 0;  ///< cycles in which nothing else kept the engine busy
};

/// What bounds the DMA engines.
struct DmaLimits {
  std::size_t outstanding = 1;    ///< transfers in flight per engine
  double bytes_per_cycle = 0;     ///< of all engines together; 0: no limit
  double unpacked_per_cycle = 0;  ///< bytes of packed weights; 0: unpacking takes no time
  bool scale64 = false;           ///< a row's scales are fetched as 64 bytes (TimingOptions::compat_scale64)
};

/// The DMA engines: transfers in flight, on the command-level DRAM model. Packed weights pass through the look-up of
/// the vector contexts on their way, in the order in which they are needed; it has its own time, at a rate measured for
/// unpacking alone, and vector instructions do not slow it down.
///
/// The DRAM model must only be queried after everything that arrives before the result has been submitted. The front
/// end therefore waits for data before it dispatches further instructions: these arrive at or after the result. Methods
/// marked "Head" must only be called for an instruction that is next in the front end. Transfers that start later than
/// others that were dispatched after them (their buffer is still in use) are held back here and submitted in order of
/// time.
class Transfers {
 public:
  /// `memory`, `ports`, `accounts` must outlive this. `matrix_port`: the only port of matrix SRAM, which arriving rows
  /// share with the array; null if they have their own.
  Transfers(dram::MemorySystem& memory, PortCalendar& ports, PortCalendar* matrix_port, Accounts& accounts,
            const DmaLimits& limits);

  /// Head: when a new transfer of this engine finds a free descriptor; they are reused in order.
  Cycle slot_free(Engine engine);
  /// Head: when all transfers with the tag are done; 0: all of all tags.
  Cycle fence(std::uint32_t tag);
  /// Head: when the stores that overlap a load's bytes are done.
  Cycle after_stores(const ResolvedAccesses& accesses);
  /// Head: when the cell's data are in the SRAM.
  Cycle arrive(Cell& cell);

  /// Earliest start under the bandwidth limit of the engines.
  Cycle paced(Cycle start) const { return std::max(start, static_cast<Cycle>(free_at_)); }
  /// Moves HBM ranges into the cells of `target`, or (stores) out of it, which does not change the cells.
  void submit(const TransferRequest& request, const ResolvedAccesses& accesses, const MemoryRange& target,
              Scoreboard& board);

  /// Head, at the end of the program: completes everything. Returns the last completion.
  Cycle finish();
  /// Attributes idle time of engines without transfers; keeps the list of stalls short.
  void settle();

  /// Serial issue: submits at `now` and waits.
  Cycle blocking(const ResolvedAccesses& accesses, Cycle now, bool packed, std::uint64_t& bytes);

  std::vector<FinishedTransfer>& finished() { return finished_; }
  std::uint64_t bytes(bool write) const { return bytes_[write ? 1 : 0]; }

 private:
  struct Piece {
    std::vector<dram::TransferId> ids;
    Cell* cell = nullptr;
    std::uint32_t previous = 0;     ///< older piece for the same cell
    std::uint32_t held = 0;         ///< requests not yet submitted
    bool port = false;              ///< a row of the vector SRAM, written through a port
    std::uint32_t matrix_rows = 0;  ///< rows of a matrix SRAM with one port
    std::uint64_t packed = 0;       ///< bytes to be unpacked
    bool resolved = false;
    Cycle done = 0;
  };
  struct Record {
    TransferRequest request;
    std::vector<std::uint32_t> pieces;
    std::size_t arrived = 0;  ///< pieces, from the first on, that settle() has found complete
    std::uint64_t bytes = 0;
    std::array<std::uint64_t, 2> low = {}, high = {};  ///< HBM bytes of a store
  };

  /// Rows [first, first + rows) of a range, to be submitted at `at`.
  struct Held {
    Cycle at = 0;
    std::uint64_t order = 0;
    std::uint32_t piece = 0;
    MemoryRange range;
    std::uint32_t first = 0, rows = 0;
    bool scales = false;
    bool operator>(const Held& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  std::uint32_t new_piece();
  void submit_held(Cycle until);
  static ResolvedAccesses streams(const ResolvedAccesses& accesses, bool packed);
  void resolve(std::uint32_t piece);
  Cycle unpack(Cycle from, std::uint64_t bytes);
  Cycle complete(Record& record);
  void retire(Engine engine);
  bool arrived(const Piece& piece, Cycle by);
  std::uint64_t bytes_of(const MemoryRange& range, std::uint32_t rows, bool scales) const;
  void send(const MemoryRange& range, std::uint32_t first, std::uint32_t rows, bool scales, Cycle at,
            std::vector<dram::TransferId>& ids);
  std::deque<Record>& in_flight(Engine engine) { return in_flight_[index_of(engine) - index_of(Engine::kLoadMatrix)]; }

  dram::MemorySystem& memory_;
  PortCalendar& ports_;
  PortCalendar* matrix_port_;
  Accounts& accounts_;
  const DmaLimits limits_;
  double free_at_ = 0, unpack_rest_ = 0;  ///< the rest: fraction of a cycle carried over
  RunCalendar unpacker_;
  std::array<std::deque<Record>, 3> in_flight_;
  std::vector<Piece> pieces_{1};  ///< [0] is none
  std::vector<std::uint32_t> free_;
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
  std::uint64_t order_ = 0;
  std::vector<FinishedTransfer> finished_;
  std::array<std::uint64_t, 2> bytes_ = {};
};

}  // namespace dllm::npu
