// Nemotron-Labs-Diffusion (3B, 8B, 14B): Ministral 3's layers (grouped queries, no biases, YaRN, queries that grow with
// the position), trained to decode in three ways with one set of weights: autoregressively under a causal mask, by
// blocks of masks that see themselves in both directions, and by drafts of the second kind that the first verifies.
// Masks are predicted in place; under the causal mask the same head predicts the next token.
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {
namespace {

constexpr std::int32_t kNemotronBlock = 32;

/// Of transformers' Ministral3Config.
constexpr HfDefaults kMinistralHfDefaults = {
    .rope_theta = 1000000.0, .norm_eps = 1e-5, .context_length = 262144, .kv_heads = 8, .head_dim = 128};

void set_nemotron_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-5f;
  desc.context_length = 262144;
  desc.block_length = kNemotronBlock;
  desc.mask = 100;
  desc.eos = 11;
  desc.modes = {DecodingMode::kAutoregressive, DecodingMode::kDiffusion, DecodingMode::kSelfSpeculation};
}

Expected<Metadata> nemotron_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("attention_bias", false));
  DLLM_CHECK_OK(config.expect("dlm_paradigm", "bidirectional"));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kMinistralHfDefaults));
  Metadata meta = dense_metadata("nemotron_labs_diffusion", dims);
  meta.set("nemotron_labs_diffusion.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const std::int64_t block, config.integer_or("block_size", kNemotronBlock));
  if (block < 1 || block > 1 << 20)
    return Error{ErrorCode::kInvalidFile, "block_size is not a valid length", config.file(), ""};
  meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block)));
  meta.set("diffusion.modes", MetaValue::strings({"ar", "diffusion", "self-speculation"}));
  return meta;
}

/// The body is called `encoder`, and the head serves both predictions.
std::vector<TensorRename> nemotron_renames() {
  std::vector<TensorRename> renames = dense_renames();
  for (TensorRename& rename : renames) {
    if (rename.hf.starts_with("model.")) rename.hf.replace(0, 6, "encoder.");
    if (rename.hf == "lm_head") rename.hf = "diffusion_head";
  }
  return renames;
}

}  // namespace

Architecture nemotron_architecture() {
  return {.name = "nemotron_labs_diffusion",
          .hf_architectures = {"NemotronLabsDiffusionModel"},
          .set_defaults = set_nemotron_defaults,
          .stop_texts = {},
          .build = build_dense_transformer,
          .metadata_from_hf = nemotron_metadata,
          .renames = nemotron_renames(),
          .derived = {".self_attn.k_scale", ".self_attn.v_scale"},
          .permute_qk = false};
}

}  // namespace dllm
