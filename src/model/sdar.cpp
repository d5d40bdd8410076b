// SDAR (1.7B, 4B, 8B, 30B-A3B): Qwen3's weights; small blocks on a grid from position 0, full attention within a block,
// causal between blocks, no shift (arXiv 2510.06303). The block length of training differs between checkpoints (4 to
// 64); not all configurations contain it.
#include <fmt/format.h>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

constexpr std::int32_t kSdarBlock = 4;

void set_sdar_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.causal_block = kSdarBlock;
  desc.block_length = kSdarBlock;
  desc.block_origin = BlockOrigin::kAbsolute;
  desc.mask = 151669;  // <|MASK|>
}

Expected<Metadata> metadata(std::string_view architecture, const HfConfig& config, bool experts) {
  DLLM_TRY(Metadata meta,
           qwen3_metadata(architecture, config, experts ? kQwen3MoeHfDefaults : kQwen3HfDefaults, experts));
  meta.set(fmt::format("{}.attention.causal", architecture), MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const std::int64_t length, config.integer_or("block_length", kSdarBlock));
  DLLM_TRY(const std::int64_t block, config.integer_or("block_size", length));
  meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block)));
  return meta;
}

Architecture architecture(std::string_view name, std::string_view hf_name, bool experts) {
  return {.name = name,
          .hf_architectures = {hf_name},
          .experts = experts,
          .set_defaults = set_sdar_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = [=](const HfConfig& config) { return metadata(name, config, experts); },
          .renames = qwen3_renames(experts),
          .permute_qk = false};
}

}  // namespace

Architecture sdar_architecture() { return architecture("sdar", "SDARForCausalLM", false); }
Architecture sdar_moe_architecture() { return architecture("sdar-moe", "SDARMoeForCausalLM", true); }

}  // namespace dllm
