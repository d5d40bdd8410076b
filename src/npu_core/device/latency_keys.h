#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [latency] of a device: cycles of vector and scalar operations.
struct LatencyKeys {
#include "npu_core/device/keys/latency.def"
};

}  // namespace dllm::npu
