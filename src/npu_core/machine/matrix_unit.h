#pragma once

#include <optional>

#include "numerics/mx.h"

namespace dllm::npu {

/// Guard bits of the integer window for a pair of formats, and whether 32 bits are enough; nullopt: the pair uses the
/// floating path (BF16 on either side, or products too wide: E5M2).
///
///   G = W - (bits of a) - (bits of w) - contraction_bits, W = 31 if that leaves G >= 0, else 63
struct Window {
  int guard = 0;
  bool narrow = true;
};
std::optional<Window> matrix_window(const MxFormat& input, const MxFormat& matrix, int contraction_bits);

}  // namespace dllm::npu
