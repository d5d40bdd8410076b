// Dream-v0-7B, Dream-Coder, DiffuCoder: Qwen2 weights with q/k/v biases, full attention, logits shifted by one.
#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {
namespace {

void set_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.rope_theta = 1000000.f;
  desc.context_length = 2048;
  desc.qkv_bias = true;
  desc.logit_shift = 1;  // row i-1 predicts token i; files without diffusion.shift_logits rely on it
  desc.mask = 151666;
  desc.eos = 151643;
}

Expected<Metadata> metadata_from_hf(const HfConfig& config) {
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config));
  Metadata meta = dense_metadata("dream", dims);
  meta.set("dream.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(true));
  return meta;
}

}  // namespace

Architecture dream_architecture() {
  return {.name = "dream",
          .hf_architectures = {"DreamModel", "DreamForMaskedDiffusion"},
          .set_defaults = set_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = metadata_from_hf,
          .renames = dense_renames(),
          .permute_qk = false};
}

}  // namespace dllm
