#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"
#include "model/hf_config.h"
#include "model/hf_rope.h"
#include "model/model_desc.h"

namespace dllm {

/// Pre-norm transformer with RoPE, GQA and SwiGLU (LLaDA, arXiv 2502.09992): the body that all architectures share. The
/// differences (mask, shift, rope layout, biases, q/k norms, experts) are in the description.
Graph build_dense_transformer(const ModelDesc& desc, StepShape shape);

/// The `{arch}.*` keys of a dense transformer in llama.cpp's names.
struct DenseDims {
  std::int64_t vocab, width, layers, heads, kv_heads, head_dim, ffn_width, context_length;
  double norm_eps, rope_theta;
  HfRope rope{};  ///< scaling only; the base is rope_theta
};
Metadata dense_metadata(std::string_view architecture, const DenseDims& dims);

/// Reads hidden_size, num_hidden_layers, ...: the spelling of Llama, Qwen2 and their descendants. `ffn_width` is used
/// if there is no intermediate_size, as in models whose layers all consist of experts.
Expected<DenseDims> dense_dims_from_hf(const HfConfig& config, std::optional<std::int64_t> ffn_width = std::nullopt);

/// Tensor names in the same spelling: model.layers.{}.self_attn.q_proj, ...; including the norms of q and k, and the
/// additional or alternative tensors of a layer with experts.
std::vector<TensorRename> dense_renames(bool qk_norm = false, const std::vector<TensorRename>& experts = {});

}  // namespace dllm
