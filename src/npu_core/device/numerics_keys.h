#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [numerics] of a device: formats in memory and at the array.
struct NumericsKeys {
#include "npu_core/device/keys/numerics.def"

  // Derived, bytes per element with the share of its scale.
  double weight_bytes = 0, activation_bytes = 0, kv_bytes = 0, logit_bytes = 0;
};

}  // namespace dllm::npu
