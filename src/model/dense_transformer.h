#pragma once

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"
#include "model/hf_config.h"
#include "model/model_desc.h"

namespace dllm {

/// Pre-norm transformer with RoPE, GQA and SwiGLU (dllm-reference A.2): the body that LLaDA, Dream and Llama share.
/// What differs (mask, shift, rope layout, biases) is in the description.
Graph build_dense_transformer(const ModelDesc& desc, StepShape shape);

/// The `{arch}.*` keys of a dense transformer in llama.cpp's names.
struct DenseDims {
  std::int64_t vocab, width, layers, heads, kv_heads, head_dim, ffn_width, context_length;
  double norm_eps, rope_theta;
};
Metadata dense_metadata(std::string_view architecture, const DenseDims& dims);

/// Reads hidden_size, num_hidden_layers, ...: the spelling that Llama, Qwen2 and their descendants share.
Expected<DenseDims> dense_dims_from_hf(const HfConfig& config);

/// Tensor names of the same spelling: model.layers.{}.self_attn.q_proj, ...
std::vector<TensorRename> dense_renames();

}  // namespace dllm
