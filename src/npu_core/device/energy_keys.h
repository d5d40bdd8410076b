#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [energy] of a device: joules at the nominal clock and supply.
struct EnergyKeys {
#include "npu_core/device/keys/energy.def"
};

}  // namespace dllm::npu
