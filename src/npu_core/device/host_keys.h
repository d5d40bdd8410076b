#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [host] of a device: how work is submitted, and the host's processor.
struct HostKeys {
#include "npu_core/device/keys/host.def"
};

}  // namespace dllm::npu
