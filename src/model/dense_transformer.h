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

/// What the original code takes where config.json has no key. (transformers leaves out keys that have their default
/// when it writes a config.json.)
struct HfDefaults {
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  std::int64_t context_length = 2048;
  std::int64_t kv_heads = 0;  ///< 0, and null in the file: as many as there are heads
  std::int64_t head_dim = 0;  ///< 0: width / heads
  bool whole_heads = true;    ///< RoPE turns all of a head, and a partial_rotary_factor other than 1 is refused
};

/// Reads hidden_size, num_hidden_layers, ...: the spelling of Llama, Qwen2 and their descendants. `ffn_width` is used
/// if there is no intermediate_size, as in models whose layers all consist of experts.
Expected<DenseDims> dense_dims_from_hf(const HfConfig& config, const HfDefaults& defaults,
                                       std::optional<std::int64_t> ffn_width = std::nullopt);

/// Tensor names in the same spelling: model.layers.{}.self_attn.q_proj, ...; including the norms of q and k, and the
/// additional or alternative tensors of a layer with experts.
std::vector<TensorRename> dense_renames(bool qk_norm = false, const std::vector<TensorRename>& experts = {});

}  // namespace dllm
