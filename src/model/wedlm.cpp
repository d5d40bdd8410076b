// WeDLM (7B on Qwen2.5, 8B on Qwen3; arXiv 2512.22737): masks are filled in place under a causal mask, in an order in
// which all decided tokens come before all masks. Each keeps its own position, so a mask reads every decided token,
// those behind it included. One class for both bodies: config.json says whether q, k and v have biases, and heads
// norms.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/key_reader.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

constexpr std::string_view kHeadNorms = "attention.head_norms", kBiases = "attention.qkv_biases";

/// Of the model's configuration class; positions that its engine decodes at a time.
constexpr HfDefaults kWedlmHfDefaults = {.context_length = 32768, .kv_heads = 32};
constexpr std::int32_t kWedlmWindow = 16;

void set_wedlm_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.causal_block = 1;
  desc.decided_first = true;
  desc.block_length = kWedlmWindow;
  desc.mask = 151665;  // the token after the last of Qwen2.5's tokenizer
}

Expected<void> read_wedlm(KeyReader& keys, ModelDesc& desc) {
  DLLM_TRY(desc.kv_heads, keys.dim("attention.head_count_kv", desc.heads));
  DLLM_TRY(const auto norms, keys.boolean(kHeadNorms));
  DLLM_TRY(const auto biases, keys.boolean(kBiases));
  desc.qk_norm = norms.value_or(true);
  desc.qkv_bias = biases.value_or(false);
  if (desc.causal_block == 1) return {};
  return Error{ErrorCode::kUnsupported, "the model's attention is causal", keys.key("attention.causal"),
               "remove the key"};
}

Expected<Metadata> wedlm_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("use_sliding_window", false));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kWedlmHfDefaults));
  Metadata meta = dense_metadata("wedlm", dims);
  DLLM_TRY(const bool norms, config.boolean_or("qk_norm", false));
  DLLM_TRY(const bool biases, config.boolean_or("attention_bias", true));
  meta.set(fmt::format("wedlm.{}", kHeadNorms), MetaValue::boolean(norms));
  meta.set(fmt::format("wedlm.{}", kBiases), MetaValue::boolean(biases));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  meta.set("diffusion.block_length", MetaValue::u32(kWedlmWindow));
  return meta;
}

}  // namespace

Architecture wedlm_architecture() {
  return {.name = "wedlm",
          .hf_architectures = {"WeDLMForCausalLM"},
          .set_defaults = set_wedlm_defaults,
          .read_layers = read_wedlm,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = wedlm_metadata,
          .renames = dense_renames(true),
          .permute_qk = false};
}

}  // namespace dllm
