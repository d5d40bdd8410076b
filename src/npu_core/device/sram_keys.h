#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [sram] of a device: memories on the chip.
struct SramKeys {
#include "npu_core/device/keys/sram.def"
};

}  // namespace dllm::npu
