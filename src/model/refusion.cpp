// ReFusion (8B; arXiv 2512.13586): Qwen3 trained further to fill slots, runs of some positions. Attention is causal in
// the order in which slots were filled, each position with its own angle; masks are predicted in place, and tokens
// predict the next one. The files have Qwen3's class; the name of repository or folder tells.
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

constexpr std::int32_t kRefusionSlot = 8;  ///< of generate_refusion(); trained with 4 to 32

void set_refusion_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.causal_block = 1;
  desc.slot_length = kRefusionSlot;
  desc.block_length = 32;
  desc.mask = 151670;
  desc.modes = {DecodingMode::kSlots};
}

Expected<Metadata> refusion_metadata(const HfConfig& config) {
  DLLM_TRY(Metadata meta, qwen3_metadata("refusion", config, kQwen3HfDefaults, false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  meta.set("diffusion.modes", MetaValue::strings({"slots"}));
  return meta;
}

}  // namespace

Architecture refusion_architecture() {
  return {.name = "refusion",
          .hf_architectures = {},  // hf_class.cpp
          .set_defaults = set_refusion_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = refusion_metadata,
          .renames = qwen3_renames(false),
          .permute_qk = false};
}

}  // namespace dllm
