#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [thermal] of a device: what a body can dissipate.
struct ThermalKeys {
#include "npu_core/device/keys/thermal.def"
};

}  // namespace dllm::npu
