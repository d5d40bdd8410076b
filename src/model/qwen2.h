#pragma once

#include "model/model_desc.h"

namespace dllm {

/// Common to Qwen2.5 and the diffusion models derived from it.
void set_qwen2_defaults(ModelDesc& desc);

}  // namespace dllm
