// Qwen2 and Qwen2.5: the autoregressive reference of Dream and Fast-dLLM v2.
#include "model/qwen2.h"

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {
namespace {

void set_causal_qwen2_defaults(ModelDesc& desc) {
  set_qwen2_defaults(desc);
  desc.causal_block = 1;
  desc.block_length = 1;
}

Expected<Metadata> qwen2_metadata(const HfConfig& config) {
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kQwen2HfDefaults));
  return dense_metadata("qwen2", dims);
}

}  // namespace

void set_qwen2_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.context_length = 32768;
  desc.qkv_bias = true;
  desc.logit_shift = 1;
  desc.eos = 151645;  // <|im_end|>
}

Architecture qwen2_architecture() {
  return {.name = "qwen2",
          .hf_architectures = {"Qwen2ForCausalLM"},
          .set_defaults = set_causal_qwen2_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = qwen2_metadata,
          .renames = dense_renames(),
          .permute_qk = false};
}

}  // namespace dllm
