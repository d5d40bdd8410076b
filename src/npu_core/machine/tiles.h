#pragma once

#include <cstdint>

#include "base/to_size.h"
#include "npu_core/machine/config.h"

namespace dllm::npu {

/// Packed weights (Q4_0, Q8_0) in HBM: tiles of BLEN rows of MLEN lanes, what one M_TMM multiplies; 32 x 32 on phones.
/// A tile holds the codes of its rows and then their float16 scales, 576 bytes for 32 x 32 elements of Q4_0. Offsets
/// are bytes from the tensor's base; rows are counted as if they followed each other in memory.
struct WeightTiles {
  std::uint64_t rows = 0;        ///< of a tile
  std::uint64_t row_codes = 0;   ///< bytes of codes of a row
  std::uint64_t row_scales = 0;  ///< bytes of scales of a row

  WeightTiles(const MachineConfig& machine, const MxFormat& format)
      : rows(static_cast<std::uint64_t>(machine.blen)),
        row_codes(format.element_bytes(to_size(machine.mlen))),
        row_scales(format.scale_bytes(to_size(machine.mlen))) {}

  std::uint64_t tile_bytes() const { return rows * (row_codes + row_scales); }
  std::uint64_t codes_at(std::uint64_t row) const { return row / rows * tile_bytes() + row % rows * row_codes; }
  std::uint64_t scales_at(std::uint64_t row) const {
    return row / rows * tile_bytes() + rows * row_codes + row % rows * row_scales;
  }
};

}  // namespace dllm::npu
