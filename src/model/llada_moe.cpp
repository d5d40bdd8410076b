// LLaDA-MoE-7B-A1B: full bidirectional attention, no shift, q/k norms, 64 experts of which 8 are used, weighted by
// their softmax over all experts without renormalization.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"
#include "model/expert_layer.h"

namespace dllm {
namespace {

/// Of LLaDAMoEConfig (configuration_llada_moe.py of the published checkpoints).
constexpr HfDefaults kLladaMoeHfDefaults = {
    .rope_theta = 50000.0, .norm_eps = 1e-5, .context_length = 8192, .kv_heads = 16};

void set_llada_moe_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-5f;
  desc.context_length = 8192;
  desc.qk_norm = true;
  desc.mask = 156895;  // <|mask|> of the 157k vocabulary
  desc.eos = 156892;
}

/// Switches with the same value in every published checkpoint.
Expected<void> check_llada_moe_switches(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("attention_bias", false));
  DLLM_CHECK_OK(config.expect("qk_layernorm", true));
  DLLM_CHECK_OK(config.expect("partial_rotary_factor", 1));
  DLLM_CHECK_OK(config.expect("moe_router_score_function", "softmax"));
  DLLM_CHECK_OK(config.expect("moe_router_enable_expert_bias", false));
  DLLM_CHECK_OK(config.expect("routed_scaling_factor", 1));
  for (std::string_view key : {"clip_qkv", "shared_expert_intermediate_size", "router_num_group", "router_topk_group"})
    if (config.contains(key))
      return Error{ErrorCode::kUnsupported, fmt::format("'{}' is set", key), config.file(),
                   "no published LLaDA-MoE has it"};
  return {};
}

/// `moe_layer_freq`: 1 for every layer with experts.
Expected<void> check_llada_moe_layers(const HfConfig& config) {
  const auto it = config.json().find("moe_layer_freq");
  if (it == config.json().end() || it->is_null() || *it == 1) return {};
  if (it->is_array() && std::ranges::all_of(*it, [](const auto& layer) { return layer == 1; })) return {};
  return Error{ErrorCode::kUnsupported, "'moe_layer_freq' names layers without experts", config.file(), ""};
}

Expected<Metadata> llada_moe_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(check_llada_moe_switches(config));
  DLLM_CHECK_OK(check_llada_moe_layers(config));
  ExpertsDesc experts;
  DLLM_TRY(experts.count, config.integer("num_experts"));
  DLLM_TRY(experts.used, config.integer("num_experts_per_tok"));
  DLLM_TRY(experts.width, config.integer("expert_intermediate_size"));
  DLLM_TRY(experts.normalize, config.boolean_or("norm_topk_prob", false));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kLladaMoeHfDefaults, experts.width));
  Metadata meta = dense_metadata("llada-moe", dims);
  set_expert_metadata("llada-moe", experts, meta);
  meta.set("llada-moe.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  return meta;
}

}  // namespace

Architecture llada_moe_architecture() {
  return {.name = "llada-moe",
          .hf_architectures = {"LLaDAMoEModelLM", "LLaDAMoEModel"},
          .experts = true,
          .set_defaults = set_llada_moe_defaults,
          .stop_texts = {"<|endoftext|>", "<|role_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = llada_moe_metadata,
          .renames = dense_renames(true, expert_renames(false)),
          .permute_qk = false};
}

}  // namespace dllm
