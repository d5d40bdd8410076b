#pragma once

#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "model/architecture.h"
#include "model/model_desc.h"

namespace dllm {

/// The feed-forward part of a layer with experts, between its norm and the residual addition: router, experts, and the
/// shared expert if the model has one. Tensors in llama.cpp's names: ffn_gate_inp, exp_probs_b (bias), ffn_*_exps,
/// ffn_*_shexp.
/// "ffn_down", or as the matrix is called whose input the graph rotates with that order (OnlineRotation).
std::string down_name(std::string_view part, std::int64_t order);

ValueId build_expert_layer(GraphBuilder& builder, const ModelDesc& desc, ValueId x, std::int64_t layer);

/// The `{arch}.expert_*` keys of a model.
void set_expert_metadata(std::string_view architecture, const ExpertsDesc& experts, Metadata& meta);

/// Hugging Face names of router, experts and, optionally, the shared expert below "model.layers.{}.mlp.".
std::vector<TensorRename> expert_renames(bool shared);

/// num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob: the spelling of Qwen3-MoE and relatives.
Expected<ExpertsDesc> experts_from_hf(const HfConfig& config);

}  // namespace dllm
