#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [array] of a device: the matrix unit, and the width of the vector unit.
struct ArrayKeys {
#include "npu_core/device/keys/array.def"

  /// Derived, cycles of an M_MM: BLEN x MLEN x BLEN multiply-accumulates on BLEN x MLEN x macs_per_pe multipliers.
  double tile_cycles = 0;
};

}  // namespace dllm::npu
