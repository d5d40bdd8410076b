#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [window] of a device: addresses that the device sees at once.
struct WindowKeys {
#include "npu_core/device/keys/window.def"
};

}  // namespace dllm::npu
