// Stable-DiffCoder-8B (arXiv 2601.15892): Seed-Coder's weights, which are Llama's; blocks of 4 on a grid from position
// 0, full attention within a block, causal between blocks, masks predicted in place. config.json has neither the mask
// nor the block: both are arguments of the published generate(), with these defaults.
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"

namespace dllm {
namespace {

constexpr std::int32_t kDiffcoderBlock = 4;

void set_stable_diffcoder_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.rope_layout = RopeLayout::kInterleaved;
  desc.context_length = 8192;
  desc.causal_block = kDiffcoderBlock;
  desc.block_length = kDiffcoderBlock;
  desc.block_origin = BlockOrigin::kAbsolute;
  desc.mask = 5;
  desc.eos = 2;
}

Expected<Metadata> stable_diffcoder_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("attention_bias", false));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, HfDefaults{}));
  Metadata meta = dense_metadata("stable-diffcoder", dims);
  meta.set("stable-diffcoder.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const std::int64_t block, config.integer_or("block_size", kDiffcoderBlock));
  if (block < 1 || block > 1 << 20)
    return Error{ErrorCode::kInvalidFile, "block_size is not a valid length", config.file(), ""};
  meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block)));
  return meta;
}

}  // namespace

Architecture stable_diffcoder_architecture() {
  return {.name = "stable-diffcoder",
          .hf_architectures = {"StableDiffcoderForCausalLM", "SeedDiffcoderForCausalLM"},
          .set_defaults = set_stable_diffcoder_defaults,
          .stop_texts = {"<[end▁of▁sentence]>"},
          .build = build_dense_transformer,
          .metadata_from_hf = stable_diffcoder_metadata,
          .renames = dense_renames(),
          .permute_qk = true};
}

}  // namespace dllm
