#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [array] of a device: the matrix unit, and the width of the vector unit.
struct ArrayKeys {
#include "npu_core/device/keys/array.def"

  /// Derived, cycles of an M_MM: BLEN x MLEN x BLEN multiply-accumulates on BLEN x MLEN x macs_per_pe multipliers.
  double tile_cycles = 0;

  /// Cycles for the noise of VLEN lanes: a generator finishes a draw per cycle. FP64 logarithms and quotients take it
  /// four times as long, because multipliers of FP32's width compute them in parts (assumed, 2 to 8).
  std::int64_t draw_cycles(bool f64) const;
};

}  // namespace dllm::npu
