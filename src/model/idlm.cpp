// I-DLM (8B, 32B; arXiv 2604.11035): Qwen3 trained further under the causal mask, for masks too. A mask predicts the
// token after it, as every row does, so one pass verifies a draft and makes the next one behind it. The files have
// SDAR's class; the name of repository or folder tells.
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

void set_idlm_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.causal_block = 1;
  desc.logit_shift = 1;
  desc.block_length = 1;
  desc.mask = 151669;
  desc.introspective = true;
  desc.modes = {DecodingMode::kAutoregressive, DecodingMode::kSelfSpeculation};
}

Expected<Metadata> idlm_metadata(const HfConfig& config) {
  DLLM_TRY(Metadata meta, qwen3_metadata("idlm", config, kQwen3HfDefaults, false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(true));
  meta.set("diffusion.modes", MetaValue::strings({"ar", "self-speculation"}));
  return meta;
}

}  // namespace

Architecture idlm_architecture() {
  return {.name = "idlm",
          .hf_architectures = {},  // hf_class.cpp
          .set_defaults = set_idlm_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = idlm_metadata,
          .renames = qwen3_renames(false),
          .permute_qk = false};
}

}  // namespace dllm
