#pragma once

#include "npu_core/config/embedded_files.h"

namespace dllm::npu {

/// The embedded files of src/npu_compiler/profiles: shapes of models, and GPUs.
EmbeddedFiles compiler_profiles();

}  // namespace dllm::npu
