#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "npu_compiler/analytic/schedule_attention.h"
#include "npu_compiler/analytic/schedule_panels.h"
#include "npu_compiler/analytic/vector_kernels.h"

namespace dllm::npu {

/// Rows times one matrix, or two of the same shape whose slabs alternate.
struct ScheduledProduct {
  std::int64_t rows = 0, n = 0, k = 0;  ///< rows, output and input lanes
  int matrices = 1;
  RowKernel tail = {};    ///< of its rows, in the shadow of the last panel
  double tail_slabs = 0;  ///< of a row, 0: no such work
  double together = 1;    ///< rows of such work that are interleaved
  bool stored = false;    ///< results go to memory
};

/// The blocks of rows of one panel. A block takes as long as the slowest of its tiles, the front end, and the accesses
/// of vector SRAM by it and by what runs in its shadow. Borrows the device.
class PanelBlocks {
 public:
  /// `lanes`: of the panel; `blocks`: of BLEN rows; `queue`: instructions waiting for the array; `stored`: results go
  /// to memory.
  PanelBlocks(const Device& device, const MatrixShape& shape, std::int64_t lanes, std::int64_t blocks,
              std::int64_t queue, bool stored)
      : device_(device), k_tiles_(shape.k_tiles), columns_(lanes / device.array.blen) {
    const ArrayKeys& a = device.array;
    const auto tiles = static_cast<double>(columns_ * k_tiles_);
    array_ = block_cycles(device, tiles, lanes * shape.k_tiles, blocks);
    const double operand_rows = std::min(static_cast<double>(a.blen), std::floor(a.tile_cycles));
    own_ = tiles * operand_rows + static_cast<double>(lanes + (stored ? ceil_div(lanes * a.blen, a.vlen) : 0));
    queued_ = queue_lead(a, static_cast<double>(queue), static_cast<double>(k_tiles_));
  }

  double columns() const { return static_cast<double>(columns_); }
  double array() const { return array_; }  ///< cycles of a block's tiles
  double own() const { return own_; }      ///< its accesses of vector SRAM
  double free_ports() const { return std::max(0.0, 1 - own_ / (array_ * ports())); }

  /// Other work during a block.
  struct Shadow {
    double accesses = 0;
    double slices = 0;  ///< cycles of the block if the front end limits it
    double waits = 0;   ///< of the array for the front end
  };
  /// `rows` rows of `slabs` slabs between the column blocks. `fresh`: they are results of the block before.
  Shadow beside(const RowKernel& kernel, double slabs, std::int64_t rows, bool fresh) const {
    return {kernel.accesses * slabs * static_cast<double>(rows),
            slices_cycles(device_, kernel, slabs, {columns_, k_tiles_, array_, queued_, rows, fresh}), 0};
  }
  /// RoPE's rows, of so many accesses each: spread evenly over `all` blocks, but no more than the array has cycles for.
  Shadow beside_ropes(double rows, double accesses, std::int64_t all) const {
    const double fit = std::max(1.0, std::floor(array_ / accesses));
    const double rows_each = std::min(fit, std::ceil(rows / static_cast<double>(all)));
    return beside(rope_kernel(), accesses / rope_kernel().accesses, static_cast<std::int64_t>(rows_each), false);
  }
  /// SwiGLU of the same block of the slab before.
  Shadow behind() const {
    return {swiglu_kernel(device_.latency).accesses * static_cast<double>(device_.array.blen), 0,
            behind_block_wait(device_, columns_, queued_)};
  }
  double cycles(const Shadow& shadow) const {
    const auto issue = static_cast<double>(2 * columns_ * k_tiles_);  // pointers of x and of the weights
    return std::max({array_ + shadow.waits, issue, (own_ + shadow.accesses) / ports(), shadow.slices});
  }

 private:
  double ports() const { return static_cast<double>(device_.sram.vector_ports); }

  const Device& device_;
  std::int64_t k_tiles_ = 0, columns_ = 0;
  double array_ = 0, own_ = 0, queued_ = 0;
};

}  // namespace dllm::npu
