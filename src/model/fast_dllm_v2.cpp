// Fast-dLLM v2 (1.5B, 7B): Qwen2.5's weights; blocks of 32 on a grid from position 0, full attention within a block,
// causal between blocks; row i-1 predicts token i, so the last row of a finished block predicts the first token of the
// next (arXiv 2509.26328). The published sampler commits that token whatever its confidence; here it has to pass the
// decoder's rule like every other.
#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"
#include "model/qwen2.h"

namespace dllm {
namespace {

constexpr std::int32_t kFastDllmBlock = 32;

void set_fast_dllm_v2_defaults(ModelDesc& desc) {
  set_qwen2_defaults(desc);
  desc.causal_block = kFastDllmBlock;
  desc.block_length = kFastDllmBlock;
  desc.block_origin = BlockOrigin::kAbsolute;
  desc.mask = 151665;
}

Expected<Metadata> fast_dllm_v2_metadata(const HfConfig& config) {
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kQwen2HfDefaults));
  Metadata meta = dense_metadata("fast-dllm-v2", dims);
  meta.set("fast-dllm-v2.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(true));
  DLLM_TRY(const std::int64_t block, config.integer_or("bd_size", kFastDllmBlock));
  meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block)));
  return meta;
}

}  // namespace

Architecture fast_dllm_v2_architecture() {
  return {.name = "fast-dllm-v2",
          .hf_architectures = {"Fast_dLLM_QwenForCausalLM"},
          .set_defaults = set_fast_dllm_v2_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = fast_dllm_v2_metadata,
          .renames = dense_renames(),
          .permute_qk = false};
}

}  // namespace dllm
