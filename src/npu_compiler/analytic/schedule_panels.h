#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/integers.h"
#include "npu_compiler/lowering/mapping.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

/// Vector code that unpacks weights is a stage after the memory.
inline double cycles_per_weight(const Device& device, double bytes_per_cycle) {
  const double unpacked = device.unpack_gbps() / device.clock.ghz;  // bytes per cycle; 0: at no cost
  return device.numerics.weight_bytes / (unpacked > 0 ? std::min(bytes_per_cycle, unpacked) : bytes_per_cycle);
}

/// Cycles of the array on a block of rows of a panel. With one port of matrix SRAM, it alternates with the rows that
/// arrive for the next panel, `panel_rows` in `blocks` blocks.
inline double block_cycles(const Device& device, double tiles, std::int64_t panel_rows, std::int64_t blocks) {
  const double arriving =
      device.sram.matrix_ports > 1 ? 0 : static_cast<double>(panel_rows) / static_cast<double>(blocks);
  return tiles * device.array.tile_cycles + arriving;
}

/// Cycles that the array loses between two panels of a slab: the front end needs about 20 instructions for the next
/// panel's transfer and for addresses, then the array's queue fills again. In simulations of panels of two to four
/// column blocks 4 to 44 cycles; of a single one up to 70, and the schedule counts twice as much.
inline constexpr double kPanelSwitch = 40;

/// The panels of a step in order, two of them in matrix SRAM: one is multiplied while the next one is loaded. A layer
/// of experts interrupts the stream: the panel after it is requested when the experts are finished.
class PanelStream {
 public:
  void add(double cycles) { loads_.push_back(cycles); }
  void add_stop() { stops_.push_back(loads_.size()); }
  void pass_stop() { ++passed_; }

  /// Requests the next panel, not before `begin`; it goes into the buffer whose product has finished.
  void ask(double begin) {
    if (asked_ == loads_.size() || (passed_ < stops_.size() && asked_ == stops_[passed_])) return;
    dma = std::max({dma, free_[asked_ % 2], begin}) + loads_[asked_];
    there_[asked_++ % 2] = dma;
  }
  /// Of the panel that is multiplied: cycles of memory, and when its last byte has arrived.
  double load() const { return loads_[panel_]; }
  double there() const { return there_[panel_ % 2]; }
  /// It has been multiplied.
  void finish(double now) { free_[panel_++ % 2] = now; }

  double dma = 0;  ///< when the load engine has finished all earlier work

 private:
  std::vector<double> loads_;
  std::vector<std::size_t> stops_;  ///< panels before which experts run
  std::size_t asked_ = 0, panel_ = 0, passed_ = 0;
  double free_[2] = {0, 0}, there_[2] = {0, 0};
};

}  // namespace dllm::npu
