#pragma once

#include <string_view>

#include "model/architecture.h"

namespace dllm {

/// What Qwen3, Qwen3-MoE and the diffusion models made of them (RND1, SDAR) share: q/k norms, no biases, RoPE base 1e6.
void set_qwen3_defaults(ModelDesc& desc);

/// Model keys from a configuration in Qwen3's spelling; `experts`: in that of Qwen3-MoE, every layer of experts.
Expected<Metadata> qwen3_metadata(std::string_view architecture, const HfConfig& config, bool experts);

std::vector<TensorRename> qwen3_renames(bool experts);

}  // namespace dllm
