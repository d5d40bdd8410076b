#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [memory] of a device: DRAM and the way to it.
struct MemoryKeys {
#include "npu_core/device/keys/memory.def"
};

}  // namespace dllm::npu
