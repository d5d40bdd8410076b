#pragma once

#include "npu_core/config/embedded_files.h"

namespace dllm::npu {

/// The embedded files of src/npu_backend/profiles: number formats of whole models.
EmbeddedFiles backend_profiles();

}  // namespace dllm::npu
