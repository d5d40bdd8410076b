#pragma once

#include <array>
#include <cstdint>

#include "npu_core/machine/lazy_array.h"
#include "npu_core/machine/resolve.h"
#include "npu_core/timing/clock.h"

namespace dllm::npu {

/// State of a piece of on-chip memory, initially all zero.
struct Cell {
  Cycle ready = 0;             ///< from then on the last value may be read from the memory
  Cycle read_until = 0;        ///< last cycle in which the current value is read
  std::uint32_t transfer = 0;  ///< index of the transfer that is filling it; 0: none
  Engine writer = Engine::kFrontEnd;
};

/// Valid bits with times: for rows of the vector SRAM, groups of rows of the matrix SRAM, and groups of words of the
/// scalar memories. Two instructions that access different parts of one cell are ordered too: that is the granularity
/// of the hardware's valid bits.
class Scoreboard {
 public:
  explicit Scoreboard(const MachineConfig& config);

  /// Calls f(cell) for each cell of the range, possibly more than once. HBM and accumulators have none.
  template <class F>
  void for_cells(const MemoryRange& range, F&& f) {
    const auto space = static_cast<std::size_t>(range.space);
    if (space >= kSpaces || range.length == 0) return;
    LazyArray<Cell>& cells = cells_[space];
    const int shift = shift_[space];
    for (std::uint32_t g = 0; g < range.groups; ++g) {
      std::uint64_t done = ~std::uint64_t{0};
      for (std::uint32_t r = 0; r < range.rows; ++r) {
        const std::uint64_t begin = range.base + g * range.group_stride + r * range.row_stride;
        const std::uint64_t last = (begin + range.length - 1) >> shift;
        for (std::uint64_t c = begin >> shift; c <= last; ++c)
          if (c != done) f(cells[done = c]);
      }
    }
  }
  /// The cell of an address.
  Cell& at(Space space, std::uint64_t address) {
    return cells_[static_cast<std::size_t>(space)][address >> shift_[static_cast<std::size_t>(space)]];
  }
  std::uint64_t row_of(std::uint64_t vram_address) const { return vram_address >> shift_[0]; }
  int shift(Space space) const { return shift_[static_cast<std::size_t>(space)]; }

 private:
  static constexpr std::size_t kSpaces = 4;  ///< VRAM, MRAM, FP_MEM, INT_MEM, in the order of Space
  std::array<LazyArray<Cell>, kSpaces> cells_;
  std::array<int, kSpaces> shift_ = {};
};

/// A register that several units read and write.
struct RegisterTime {
  Cycle ready = 0;       ///< its value may be used from then on
  Cycle read_until = 0;  ///< last start of an instruction that uses the current value
  Engine writer = Engine::kFrontEnd;
  std::int8_t pipe = -1;  ///< vector pipe that wrote it: a reduction into the same register follows without waiting
};

/// The cause of waiting for an engine's result.
Cause cause_of(Engine writer);

}  // namespace dllm::npu
