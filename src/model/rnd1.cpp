// RND1-30B-A3B: Qwen3-MoE's weights with full bidirectional attention; row i-1 predicts token i, and nothing predicts
// position 0 (the checkpoint's config.json).
#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

void set_rnd1_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.logit_shift = 1;  // llama.cpp's converter writes no diffusion.shift_logits
  desc.mask = 151669;
}

Expected<Metadata> rnd1_metadata(const HfConfig& config) {
  // RND1Config is a Qwen3MoeConfig whose heads have 128 lanes.
  HfDefaults defaults = kQwen3MoeHfDefaults;
  defaults.head_dim = 128;
  DLLM_TRY(Metadata meta, qwen3_metadata("rnd1", config, defaults, true));
  meta.set("rnd1.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(true));
  return meta;
}

}  // namespace

Architecture rnd1_architecture() {
  return {.name = "rnd1",
          .hf_architectures = {"RND1LM", "RND1"},
          .experts = true,
          .set_defaults = set_rnd1_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = rnd1_metadata,
          .renames = qwen3_renames(true),
          .permute_qk = false};
}

}  // namespace dllm
