#pragma once

#include "npu_core/device/format_costs.h"
#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [numerics] of a device: formats in memory and at the array.
struct NumericsKeys {
#include "npu_core/device/keys/numerics.def"

  // Derived, bytes per element with the share of its scale.
  double weight_bytes = 0, activation_bytes = 0, kv_bytes = 0, logit_bytes = 0;
  bool weights_packed = false;  ///< derived: q4_0 or q8_0, which the array does not read as they are
  FormatCosts costs;            ///< derived
};

}  // namespace dllm::npu
