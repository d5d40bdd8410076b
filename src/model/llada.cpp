// LLaDA-8B, LLaDA-1.5 and descendants: full bidirectional attention, no shift, blocks from the end of the prompt.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {
namespace {

void set_llada_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-5f;
  desc.rope_layout = RopeLayout::kInterleaved;  // GGUFs hold permuted Q/K rows (llama.cpp's converter permutes them)
  desc.context_length = 4096;
  desc.mask = 126336;  // <|mdm_mask|> of the 126k vocabulary
  desc.eos = 126081;
}

/// Switches of LLaDA's (OLMo's) configuration that would change the network.
Expected<void> check_llada_switches(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("block_type", "llama"));
  DLLM_CHECK_OK(config.expect("layer_norm_type", "rms"));
  DLLM_CHECK_OK(config.expect("layer_norm_with_affine", true));
  DLLM_CHECK_OK(config.expect("activation_type", "silu"));
  DLLM_CHECK_OK(config.expect("rope", true));
  DLLM_CHECK_OK(config.expect("alibi", false));
  DLLM_CHECK_OK(config.expect("attention_layer_norm", false));
  DLLM_CHECK_OK(config.expect("scale_logits", false));
  DLLM_CHECK_OK(config.expect("input_emb_norm", false));
  DLLM_CHECK_OK(config.expect("block_group_size", 1));
  DLLM_CHECK_OK(config.expect("bias_for_layer_norm", false));
  // LLaDA's code knows no scaling of RoPE, and neither limits nor scales activations.
  for (const char* key : {"rope_scaling", "rope_parameters", "clip_qkv", "scaling_factor"})
    if (config.contains(key) && config.json()[key] != false)
      return Error{ErrorCode::kUnsupported, fmt::format("'{}' is set, and LLaDA's own code does not read it", key),
                   config.file(), "remove the key to run the model without it; --rope-scaling scales positions"};
  return {};
}

Expected<Metadata> llada_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(check_llada_switches(config));
  // Absent keys: the defaults of ModelConfig in the checkpoints' configuration_llada.py.
  DenseDims dims{};
  DLLM_TRY(dims.vocab, config.integer("embedding_size"));  // vocab_size may be smaller than the table
  DLLM_TRY(dims.width, config.integer("d_model"));
  DLLM_TRY(dims.layers, config.integer("n_layers"));
  DLLM_TRY(dims.heads, config.integer("n_heads"));
  DLLM_TRY(const bool multi_query, config.boolean_or("multi_query_attention", false));
  DLLM_TRY(dims.kv_heads, config.integer_or("n_kv_heads", multi_query ? 1 : dims.heads));
  if (dims.heads <= 0 || dims.width % dims.heads != 0)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("d_model {} is not a multiple of n_heads {}", dims.width, dims.heads), config.file(), ""};
  dims.head_dim = dims.width / dims.heads;
  DLLM_TRY(const std::int64_t ratio, config.integer_or("mlp_ratio", 4));
  DLLM_TRY(dims.ffn_width, config.integer_or("mlp_hidden_size", ratio * dims.width));
  DLLM_TRY(dims.context_length, config.integer_or("max_sequence_length", 1024));
  DLLM_TRY(dims.norm_eps, config.number_or("rms_norm_eps", 1e-5));
  DLLM_TRY(dims.rope_theta, config.number_or("rope_theta", 10000.0));
  Metadata meta = dense_metadata("llada", dims);
  meta.set("llada.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  // Its tokenizer_config.json says no, but the model was trained with it, and llama.cpp's converter writes yes.
  meta.set("tokenizer.ggml.add_bos_token", MetaValue::boolean(true));
  return meta;
}

std::vector<TensorRename> llada_renames() {
  return {
      {"model.transformer.wte", "token_embd"},
      {"model.transformer.blocks.{}.attn_norm", "blk.{}.attn_norm"},
      {"model.transformer.blocks.{}.q_proj", "blk.{}.attn_q"},
      {"model.transformer.blocks.{}.k_proj", "blk.{}.attn_k"},
      {"model.transformer.blocks.{}.v_proj", "blk.{}.attn_v"},
      {"model.transformer.blocks.{}.attn_out", "blk.{}.attn_output"},
      {"model.transformer.blocks.{}.ff_norm", "blk.{}.ffn_norm"},
      {"model.transformer.blocks.{}.ff_proj", "blk.{}.ffn_gate"},
      {"model.transformer.blocks.{}.up_proj", "blk.{}.ffn_up"},
      {"model.transformer.blocks.{}.ff_out", "blk.{}.ffn_down"},
      {"model.transformer.ln_f", "output_norm"},
      {"model.transformer.ff_out", "output"},
  };
}

}  // namespace

Architecture llada_architecture() {
  return {.name = "llada",
          .hf_architectures = {"LLaDAModelLM", "LLaDAModel"},
          .set_defaults = set_llada_defaults,
          .stop_texts = {"<|endoftext|>", "<|eot_id|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = llada_metadata,
          .renames = llada_renames(),
          .tied_by_default = true,
          .permute_qk = true};
}

}  // namespace dllm
