#pragma once

#include <string_view>

#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {

/// Common to Qwen3, Qwen3-MoE and diffusion models derived from them (RND1, SDAR): q/k norms, no biases.
void set_qwen3_defaults(ModelDesc& desc);

/// Of transformers' Qwen3Config, which SDAR's configuration class repeats, and of its Qwen3MoeConfig.
inline constexpr HfDefaults kQwen3HfDefaults = {.context_length = 32768, .kv_heads = 32, .head_dim = 128};
inline constexpr HfDefaults kQwen3MoeHfDefaults = {.context_length = 32768, .kv_heads = 4};

/// Model keys from a configuration in Qwen3's spelling; `experts`: in Qwen3-MoE's, with every layer made of experts.
Expected<Metadata> qwen3_metadata(std::string_view architecture, const HfConfig& config, const HfDefaults& defaults,
                                  bool experts);

std::vector<TensorRename> qwen3_renames(bool experts);

}  // namespace dllm
