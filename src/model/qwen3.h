#pragma once

#include <string_view>

#include "model/architecture.h"

namespace dllm {

/// Common to Qwen3, Qwen3-MoE and diffusion models derived from them (RND1, SDAR): q/k norms, no biases, RoPE base 1e6.
void set_qwen3_defaults(ModelDesc& desc);

/// Model keys from a configuration in Qwen3's spelling; `experts`: in Qwen3-MoE's, with every layer made of experts.
Expected<Metadata> qwen3_metadata(std::string_view architecture, const HfConfig& config, bool experts);

std::vector<TensorRename> qwen3_renames(bool experts);

}  // namespace dllm
