#pragma once

#include "model/model_desc.h"

namespace dllm {

/// What Qwen2.5 and the diffusion models made of it share.
void set_qwen2_defaults(ModelDesc& desc);

}  // namespace dllm
