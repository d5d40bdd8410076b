#pragma once

#include <string>
#include <utility>

#include "dllm/error.h"

namespace dllm {

/// What a build without simulated NPUs (CMake's DLLM_NPU=OFF) answers to `where`, a flag or a verb.
inline Error no_npu(std::string where) {
  return Error{ErrorCode::kUnsupported, "this build has no simulated NPUs", std::move(where),
               "use a build with the CMake option DLLM_NPU=ON, which is the default"};
}

}  // namespace dllm
