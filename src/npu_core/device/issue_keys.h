#pragma once

#include "npu_core/device/keys/member.h"

namespace dllm::npu {

/// [issue] of a device: the front end and the vector unit's issue.
struct IssueKeys {
#include "npu_core/device/keys/issue.def"
};

}  // namespace dllm::npu
