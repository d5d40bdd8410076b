// Dream-v0-7B, Dream-Coder, DiffuCoder: Qwen2 weights with q/k/v biases, full attention, logits shifted by one.
#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"
#include "model/qwen2.h"

namespace dllm {
namespace {

void set_dream_defaults(ModelDesc& desc) {
  set_qwen2_defaults(desc);
  desc.context_length = 2048;
  desc.logit_shift = 1;  // row i-1 predicts token i; files without diffusion.shift_logits rely on it
  desc.mask = 151666;
  desc.eos = 151643;
}

Expected<Metadata> dream_metadata(const HfConfig& config) {
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kQwen2HfDefaults));
  Metadata meta = dense_metadata("dream", dims);
  meta.set("dream.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(true));
  return meta;
}

}  // namespace

Architecture dream_architecture() {
  return {.name = "dream",
          .hf_architectures = {"DreamModel", "DreamForMaskedDiffusion"},
          .set_defaults = set_dream_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = dream_metadata,
          .renames = dense_renames(),
          .permute_qk = false};
}

}  // namespace dllm
