#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [clock] of a device: the clock and its cost (power.h).
struct ClockKeys {
#include "npu_core/device/keys/clock.def"

  double voltage = 0.7;  ///< derived: supply at `ghz`
  double effort = 1;     ///< derived: size of gates relative to the nominal design
};

}  // namespace dllm::npu
