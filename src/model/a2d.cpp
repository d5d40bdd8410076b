// A2D ("autoregressive to diffusion", github.com/ZHZisZZ/dllm; its published checkpoints are called Tiny-A2D): Qwen3,
// Qwen2 and Llama trained further to fill masks in place. The weights have the names and shapes of the autoregressive
// model. Those of MDLM's training see the whole canvas. Those of BD3LM's are causal between blocks on a grid from
// position 0, and whole within a block; the class and config.json are the same for both, the repository's name is not.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/describe.h"
#include "model/hf_class.h"
#include "model/qwen2.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

constexpr std::int64_t kBd3lmBlock = 32;  // of the published checkpoints, whose names do not contain it

/// What the three bodies have in common; the attention is the file's (kAttentionBlockKey), or full.
void set_a2d_defaults(ModelDesc& desc, TokenId mask) {
  desc.causal_block = 0;
  desc.logit_shift = 0;
  desc.block_length = 32;
  desc.mask = mask;
}

/// The mask is added after the last token of the tokenizer.
void set_a2d_qwen3_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  set_a2d_defaults(desc, 151669);
}

void set_a2d_qwen2_defaults(ModelDesc& desc) {
  set_qwen2_defaults(desc);
  set_a2d_defaults(desc, 151665);
}

void set_a2d_llama_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-5f;
  desc.rope_layout = RopeLayout::kInterleaved;
  desc.context_length = 2048;
  set_a2d_defaults(desc, 128256);
}

struct AttentionBlocks {
  std::int64_t block;  ///< 0: there are none
  std::string warning{};
};

/// Absent in config.json, the names of the class and of the repository tell.
Expected<AttentionBlocks> attention_blocks(const HfConfig& config) {
  DLLM_TRY(const auto given, config.optional_integer("block_size"));
  if (given) return AttentionBlocks{*given};
  if (config.contains("architectures")) {
    DLLM_TRY(const std::string name, config.architecture());
    if (name.starts_with("BD3LM")) return AttentionBlocks{kBd3lmBlock};
  }
  DLLM_TRY(const bool blocks, is_named(config, "bd3lm"));
  DLLM_TRY(const bool whole, is_named(config, "mdlm"));
  if (blocks != whole) return AttentionBlocks{blocks ? kBd3lmBlock : 0};
  return AttentionBlocks{0,
                         fmt::format("{}: the names of repository and folder say {}; it is read as a model that "
                                     "sees the whole canvas. If it was trained in blocks, set 'block_size' there",
                                     config.file(), blocks ? "both 'mdlm' and 'bd3lm'" : "neither 'mdlm' nor 'bd3lm'")};
}

Expected<std::string> a2d_warning(const HfConfig& config) {
  DLLM_TRY(AttentionBlocks blocks, attention_blocks(config));
  return std::move(blocks.warning);
}

Expected<Metadata> a2d_metadata(std::string_view architecture, const HfConfig& config, const HfDefaults& defaults) {
  DLLM_CHECK_OK(config.expect("attention_bias", false));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, defaults));
  Metadata meta = dense_metadata(architecture, dims);
  meta.set(fmt::format("{}.attention.causal", architecture), MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const AttentionBlocks blocks, attention_blocks(config));
  const std::int64_t block = blocks.block;
  if (block < 0 || block > 1 << 20)
    return Error{ErrorCode::kInvalidFile, fmt::format("a block of {} positions", block), config.file() + ", block_size",
                 "0 for a model that sees the whole canvas (MDLM), else the block of training (BD3LM)"};
  meta.set(std::string(kAttentionBlockKey), MetaValue::u32(static_cast<std::uint32_t>(block)));
  if (block > 0) meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block)));
  return meta;
}

/// The model cards ask for answers without thoughts.
constexpr std::string_view kWithoutThinking =
    "{%- if enable_thinking is not defined %}{%- set enable_thinking = false %}{%- endif %}";

Architecture a2d(std::string_view name, std::vector<std::string_view> classes, const HfDefaults& defaults) {
  return {.name = name,
          .hf_architectures = std::move(classes),
          .set_defaults = {},
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = [=](const HfConfig& config) { return a2d_metadata(name, config, defaults); },
          .renames = dense_renames(),
          .thinking_default = kWithoutThinking,
          .hf_warning = a2d_warning};
}

}  // namespace

Architecture a2d_qwen3_architecture() {
  Architecture result = a2d("a2d-qwen3", {"A2DQwen3LMHeadModel", "BD3LMQwen3LMHeadModel"}, kQwen3HfDefaults);
  result.set_defaults = set_a2d_qwen3_defaults;
  result.renames = qwen3_renames(false);
  return result;
}

Architecture a2d_qwen2_architecture() {
  Architecture result = a2d("a2d-qwen2", {"A2DQwen2LMHeadModel", "BD3LMQwen2LMHeadModel"}, kQwen2HfDefaults);
  result.set_defaults = set_a2d_qwen2_defaults;
  return result;
}

Architecture a2d_llama_architecture() {
  Architecture result = a2d("a2d-llama", {"A2DLlamaLMHeadModel"}, HfDefaults{});
  result.set_defaults = set_a2d_llama_defaults;
  result.stop_texts = {"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>"};
  result.permute_qk = true;
  return result;
}

}  // namespace dllm
