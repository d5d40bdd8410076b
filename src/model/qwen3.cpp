// Qwen3 and Qwen3-MoE: autoregressive references of the diffusion models derived from them. Blocks of one token and a
// shift of one, as for llama.
#include "model/qwen3.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/expert_layer.h"

namespace dllm {
namespace {

void set_causal_qwen3_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.causal_block = 1;
  desc.logit_shift = 1;
  desc.block_length = 1;
}

/// `mlp_only_layers` and `decoder_sparse_step` can add dense layers between those of experts; no release uses them.
Expected<void> check_qwen3_layers(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("decoder_sparse_step", 1));
  return config.expect("mlp_only_layers", nlohmann::json::array());
}

}  // namespace

void set_qwen3_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.context_length = 32768;
  desc.qk_norm = true;
  desc.eos = 151645;  // <|im_end|>
  desc.experts.normalize = true;
}

Expected<Metadata> qwen3_metadata(std::string_view architecture, const HfConfig& config, const HfDefaults& defaults,
                                  bool experts) {
  DLLM_CHECK_OK(config.expect("attention_bias", false));
  if (!experts) {
    DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, defaults));
    return dense_metadata(architecture, dims);
  }
  DLLM_CHECK_OK(check_qwen3_layers(config));
  DLLM_TRY(const ExpertsDesc moe, experts_from_hf(config));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, defaults, moe.width));
  Metadata meta = dense_metadata(architecture, dims);
  set_expert_metadata(architecture, moe, meta);
  return meta;
}

std::vector<TensorRename> qwen3_renames(bool experts) {
  return dense_renames(true, experts ? expert_renames(false) : std::vector<TensorRename>());
}

Architecture qwen3_architecture() {
  return {.name = "qwen3",
          .hf_architectures = {"Qwen3ForCausalLM"},
          .set_defaults = set_causal_qwen3_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf =
              [](const HfConfig& config) { return qwen3_metadata("qwen3", config, kQwen3HfDefaults, false); },
          .renames = qwen3_renames(false),
          .permute_qk = false};
}

Architecture qwen3moe_architecture() {
  return {.name = "qwen3moe",
          .hf_architectures = {"Qwen3MoeForCausalLM"},
          .experts = true,
          .set_defaults = set_causal_qwen3_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf =
              [](const HfConfig& config) { return qwen3_metadata("qwen3moe", config, kQwen3MoeHfDefaults, true); },
          .renames = qwen3_renames(true),
          .permute_qk = false};
}

}  // namespace dllm
