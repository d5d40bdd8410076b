#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"
#include "model/hf_config.h"
#include "model/model_desc.h"

namespace dllm {

/// Pre-norm transformer with RoPE, GQA and SwiGLU (LLaDA, arXiv 2502.09992): the body that all architectures share.
/// What differs (mask, shift, rope layout, biases, q/k norms, experts) is in the description.
Graph build_dense_transformer(const ModelDesc& desc, StepShape shape);

/// The `{arch}.*` keys of a dense transformer in llama.cpp's names.
struct DenseDims {
  std::int64_t vocab, width, layers, heads, kv_heads, head_dim, ffn_width, context_length;
  double norm_eps, rope_theta;
};
Metadata dense_metadata(std::string_view architecture, const DenseDims& dims);

/// Reads hidden_size, num_hidden_layers, ...: the spelling that Llama, Qwen2 and their descendants share. `ffn_width`
/// holds where there is no intermediate_size, as in models whose layers are all made of experts.
Expected<DenseDims> dense_dims_from_hf(const HfConfig& config, std::optional<std::int64_t> ffn_width = std::nullopt);

/// Tensor names of the same spelling: model.layers.{}.self_attn.q_proj, ...; with the norms of q and k, and with what
/// a layer with experts has beside or instead of its dense part.
std::vector<TensorRename> dense_renames(bool qk_norm = false, const std::vector<TensorRename>& experts = {});

}  // namespace dllm
