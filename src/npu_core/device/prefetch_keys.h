#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [prefetch] of a device: transfers between DRAM and the chip.
struct PrefetchKeys {
#include "npu_core/device/keys/prefetch.def"
};

}  // namespace dllm::npu
