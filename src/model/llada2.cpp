// LLaDA2.0, 2.1 and 2.2 (mini, flash): block-causal attention over blocks of 32 on a grid from position 0, no shift,
// RoPE over half of each head, q/k norms, a dense first layer, a sigmoid router with a selection bias, experts limited
// to groups (2.0, 2.1) or to a pool per block (2.2), one shared expert.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"
#include "model/describe.h"
#include "model/expert_layer.h"
#include "model/hf_class.h"

namespace dllm {
namespace {

constexpr std::int32_t kLlada2Block = 32;

/// Of LLaDA2MoeConfig (configuration_llada2_moe.py of the published checkpoints).
constexpr HfDefaults kLlada2HfDefaults = {.norm_eps = 1e-5, .context_length = 16384, .whole_heads = false};

void set_llada2_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.context_length = 32768;
  desc.qk_norm = true;
  desc.mask = 156895;  // <|mask|> of the 157k vocabulary
  desc.eos = 156892;
  desc.causal_block = kLlada2Block;
  desc.block_length = kLlada2Block;
  desc.block_origin = BlockOrigin::kAbsolute;
  desc.experts.score = GateScore::kSigmoid;
  desc.experts.normalize = true;
  desc.experts.scale = 2.5f;
  desc.experts.groups = 8;
  desc.experts.groups_used = 4;
}

Expected<ExpertsDesc> read_llada2_experts(const HfConfig& config) {
  DLLM_TRY(ExpertsDesc experts, experts_from_hf(config));
  DLLM_CHECK_OK(config.expect("score_function", "sigmoid"));
  experts.score = GateScore::kSigmoid;
  // The published gate always divides by the sum if a row has more than one expert; no switch controls it.
  experts.normalize = experts.used > 1;
  DLLM_TRY(const std::int64_t shared, config.integer_or("num_shared_experts", 0));
  DLLM_TRY(experts.shared_width, config.integer_or("moe_shared_expert_intermediate_size", shared * experts.width));
  DLLM_TRY(experts.leading_dense, config.integer_or("first_k_dense_replace", 0));
  DLLM_TRY(const double scale, config.number_or("routed_scaling_factor", 2.5));
  experts.scale = static_cast<float>(scale);
  DLLM_TRY(experts.capacity, config.integer_or("expert_capacity", 0));
  if (experts.capacity > 0) return experts;  // block routing replaces the group limit
  DLLM_TRY(experts.groups, config.integer_or("n_group", 8));
  DLLM_TRY(experts.groups_used, config.integer_or("topk_group", 4));
  return experts;
}

Expected<Metadata> llada2_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("use_qk_norm", true));
  DLLM_CHECK_OK(config.expect("use_qkv_bias", false));
  DLLM_CHECK_OK(config.expect("use_bias", false));
  DLLM_CHECK_OK(config.expect("norm_head", false));
  DLLM_TRY(const ExpertsDesc experts, read_llada2_experts(config));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kLlada2HfDefaults, experts.width));
  DLLM_TRY(const double share, config.number_or("partial_rotary_factor", 0.5));
  const auto rope_dims =
      static_cast<std::int64_t>(static_cast<double>(dims.head_dim) * dims.rope.rotated_share.value_or(share));
  Metadata meta = dense_metadata("llada2", dims);
  meta.set("llada2.rope.dimension_count", MetaValue::u32(static_cast<std::uint32_t>(rope_dims)));
  set_expert_metadata("llada2", experts, meta);
  // Not causal within a block; the grid is in diffusion.block_length.
  meta.set("llada2.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const std::int64_t block, config.integer_or("block_size", kLlada2Block));
  // The version with block routing edits the length of a block with two tokens of its vocabulary; no published file
  // names them.
  constexpr std::uint32_t kDelete = 156930, kInsert = 156931;
  if (experts.capacity > 0 && dims.vocab > kInsert) {
    meta.set("tokenizer.ggml.delete_token_id", MetaValue::u32(kDelete));
    meta.set("tokenizer.ggml.insert_token_id", MetaValue::u32(kInsert));
  }
  meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block)));
  // DMax trains LLaDA2 further; nothing in its config.json says so.
  DLLM_TRY(const bool soft, is_named(config, "dmax"));
  if (soft) meta.set(std::string(kSoftTokensKey), MetaValue::boolean(true));
  return meta;
}

std::vector<TensorRename> llada2_renames() {
  std::vector<TensorRename> all = {
      {"model.word_embeddings", "token_embd"},
      {"model.layers.{}.input_layernorm", "blk.{}.attn_norm"},
      {"model.layers.{}.attention.query_key_value", "blk.{}.attn_qkv"},
      {"model.layers.{}.attention.query_layernorm", "blk.{}.attn_q_norm"},
      {"model.layers.{}.attention.key_layernorm", "blk.{}.attn_k_norm"},
      {"model.layers.{}.attention.dense", "blk.{}.attn_output"},
      {"model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"},
      {"model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"},
      {"model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"},
      {"model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"},
  };
  for (TensorRename& rename : expert_renames(true)) all.push_back(std::move(rename));
  all.push_back({"model.norm", "output_norm"});
  all.push_back({"lm_head", "output"});
  return all;
}

}  // namespace

Architecture llada2_architecture() {
  return {.name = "llada2",
          .hf_architectures = {"LLaDA2MoeModelLM"},
          .experts = true,
          .set_defaults = set_llada2_defaults,
          .stop_texts = {"<|endoftext|>", "<|role_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = llada2_metadata,
          .renames = llada2_renames(),
          .permute_qk = false};
}

/// Ling 2.0, the same network: some GGUFs of LLaDA2.0 were made under its name before llama.cpp had a new one.
Architecture bailingmoe2_architecture() {
  Architecture alias = llada2_architecture();
  alias.name = "bailingmoe2";
  alias.hf_architectures = {};
  alias.names_mask = true;
  return alias;
}

}  // namespace dllm
