// Llama: the autoregressive reference. Causal attention is block-causal attention with blocks of one token, and row i-1
// predicts token i, so the denoising loop also decodes it.
#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {
namespace {

void set_llama_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-5f;
  desc.rope_layout = RopeLayout::kInterleaved;
  desc.context_length = 2048;
  desc.causal_block = 1;
  desc.logit_shift = 1;
  desc.block_length = 1;
}

Expected<Metadata> llama_metadata(const HfConfig& config) {
  // transformers' LlamaConfig has the values of HfDefaults.
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, HfDefaults{}));
  return dense_metadata("llama", dims);
}

}  // namespace

Architecture llama_architecture() {
  return {.name = "llama",
          .hf_architectures = {"LlamaForCausalLM"},
          .set_defaults = set_llama_defaults,
          .stop_texts = {"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>"},
          .build = build_dense_transformer,
          .metadata_from_hf = llama_metadata,
          .renames = dense_renames(),
          .permute_qk = true};
}

}  // namespace dllm
