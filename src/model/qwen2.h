#pragma once

#include "model/dense_transformer.h"
#include "model/model_desc.h"

namespace dllm {

/// Common to Qwen2.5 and the diffusion models derived from it.
void set_qwen2_defaults(ModelDesc& desc);

/// Of transformers' Qwen2Config, which Dream's and Fast-dLLM v2's configuration classes repeat.
inline constexpr HfDefaults kQwen2HfDefaults = {.context_length = 32768, .kv_heads = 32};

}  // namespace dllm
