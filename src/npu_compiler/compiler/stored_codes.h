#pragma once

#include <cstdint>
#include <vector>

#include "model/weights.h"
#include "npu_compiler/compiler/layout.h"

namespace dllm::npu {

/// A row of a matrix in the lanes of its contraction, as the machine stores it.
struct LaneCodes {
  std::vector<std::uint16_t> codes;  ///< by lane; zero where a lane has no column
  std::vector<std::uint8_t> scales;  ///< by block of lanes: a byte, or two of packed formats

  /// Zeros.
  void reset(const MxFormat& format, std::int64_t lanes);
};

/// Whether the file stores `weight` in `format` and each block of lanes has columns of one block of the file, so that
/// stored codes and scales can be used unchanged. Rounding the decoded values again is not the same: a calibrated scale
/// is not the one that the rule derives from the block's largest value. Heads whose length is no multiple of the block
/// are cut differently in lanes; their rows are rounded again.
bool keeps_codes(const WeightView& weight, const LaneMap& in, const MxFormat& format);

/// Puts row `row` of `weight` into the lanes from `first` on, a multiple of the block. Precondition: keeps_codes().
/// Blocks of zeros of MX formats get scale 0, as mx_quantize() gives them.
void lay_codes(const WeightView& weight, std::int64_t row, const LaneMap& in, const MxFormat& format,
               std::int64_t first, LaneCodes& to);

}  // namespace dllm::npu
