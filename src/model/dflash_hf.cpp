// Drafters as Hugging Face folders: the configuration of Qwen3 with the drafter's own values in `dflash_config`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/dflash.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

/// A value of `dflash_config`, or of the configuration itself.
HfConfig drafter_config(const HfConfig& config, std::string_view key) {
  const auto own = config.json().find("dflash_config");
  if (own == config.json().end() || !own->is_object()) return config;
  HfConfig inner = HfConfig::of(*own, config.file() + ", dflash_config");
  return inner.contains(key) ? inner : config;
}

/// The package's default: spread evenly from the second layer to the fourth from the end.
std::vector<std::int64_t> default_layers(std::int64_t target, std::int64_t count) {
  if (count == 1) return {target / 2};
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i)  // Python rounds halves to even numbers, as nearbyint() does
    ids.push_back(static_cast<std::int64_t>(
        std::nearbyint(1.0 + static_cast<double>(i * (target - 4)) / static_cast<double>(count - 1))));
  return ids;
}

Expected<std::vector<std::int64_t>> target_layers(const HfConfig& config, std::int64_t count, std::int64_t layers) {
  const HfConfig own = drafter_config(config, "target_layer_ids");
  const auto ids = own.json().find("target_layer_ids");
  if (ids == own.json().end() || ids->is_null()) {
    if (count > 0) return default_layers(count, layers);
    return Error{ErrorCode::kInvalidFile, "neither 'target_layer_ids' nor 'num_target_layers' is given", config.file(),
                 ""};
  }
  std::vector<std::int64_t> result;
  for (const auto& one : *ids) {
    if (!one.is_number_integer())
      return Error{ErrorCode::kInvalidFile, "'target_layer_ids' is not a list of integers", own.file(), ""};
    result.push_back(one.get<std::int64_t>());
  }
  return result;
}

/// What would change the result.
Expected<void> check_layers(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("attention_bias", false));
  DLLM_CHECK_OK(config.expect("rope_is_neox_style", true));
  DLLM_CHECK_OK(config.expect("markov_head_type", "vanilla"));
  DLLM_CHECK_OK(drafter_config(config, "attention_value_scale").expect("attention_value_scale", 1));
  std::error_code ignored;
  const std::filesystem::path mask = std::filesystem::path(config.file()).parent_path() / "mask_embedding.pt";
  if (std::filesystem::exists(mask, ignored))
    return Error{ErrorCode::kUnsupported, "the mask's embedding is a file of Python's", mask.string(),
                 "drafters whose mask is a token of the target are supported"};
  return {};
}

/// Layers that see a window of positions, by their kinds or all of them.
Expected<std::vector<bool>> sliding_layers(const HfConfig& config, std::int64_t layers) {
  DLLM_TRY(const bool all, drafter_config(config, "use_swa").boolean_or("use_swa", false));
  std::vector<bool> slides(to_size(layers), all);
  const auto kinds = config.json().find("layer_types");
  if (all || kinds == config.json().end() || kinds->is_null()) return slides;
  if (!kinds->is_array() || kinds->size() != slides.size())
    return Error{ErrorCode::kInvalidFile, fmt::format("'layer_types' is no list of {} layers", layers), config.file(),
                 ""};
  for (std::size_t l = 0; l < slides.size(); ++l) {
    slides[l] = (*kinds)[l] == "sliding_attention";
    if (!slides[l] && (*kinds)[l] != "full_attention")
      return Error{ErrorCode::kUnsupported, fmt::format("'layer_types' has {}", (*kinds)[l].dump()), config.file(),
                   "full_attention and sliding_attention are supported"};
  }
  return slides;
}

/// Windows, and whether a block sees itself in both directions. The authors' code asks `is_causal` of the configuration
/// itself; other programs write `causal` beside the drafter's own values.
Expected<void> set_masks(const HfConfig& config, std::int64_t layers, Metadata& meta) {
  for (const char* key : {"is_causal", "causal"}) {
    const HfConfig own = drafter_config(config, key);
    if (!own.contains(key)) continue;
    DLLM_TRY(const bool causal, own.boolean_or(key, false));
    meta.set("dflash.attention.causal", MetaValue::boolean(causal));
    break;
  }
  DLLM_TRY(const std::vector<bool> slides, sliding_layers(config, layers));
  if (std::ranges::find(slides, true) == slides.end()) return {};
  const char* const key =
      drafter_config(config, "swa_window_size").contains("swa_window_size") ? "swa_window_size" : "sliding_window";
  DLLM_TRY(const std::int64_t window, drafter_config(config, key).integer(key));
  if (window < 1 || window > (1 << 24))
    return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is {}", key, window), config.file(), ""};
  meta.set("dflash.attention.sliding_window", MetaValue::u32(static_cast<std::uint32_t>(window)));
  meta.set("dflash.attention.sliding_window_pattern", MetaValue::bools(slides));
  return {};
}

/// DSpark's folders in the form of DFlash's: values of the layers may be in an object of their own, and layers of the
/// target are counted from the one whose input is meant.
Expected<HfConfig> flat_config(const HfConfig& config) {
  nlohmann::json flat = config.json();
  const auto layers = flat.find("transformer_layer_config");
  if (layers != flat.end() && layers->is_object()) {
    const nlohmann::json inner = *layers;
    for (const auto& [key, value] : inner.items()) flat[key] = value;
  }
  if (const auto ids = flat.find("aux_hidden_state_layer_ids"); ids != flat.end() && ids->is_array()) {
    std::vector<std::int64_t> outputs;
    for (const auto& one : *ids) {
      if (!one.is_number_integer())
        return Error{ErrorCode::kInvalidFile, "'aux_hidden_state_layer_ids' is not a list of integers", config.file(),
                     ""};
      outputs.push_back(one.get<std::int64_t>() - 1);
    }
    flat["target_layer_ids"] = outputs;
  }
  flat.erase("use_sliding_window");  // as in the authors' code, the kinds of layers say it; see set_masks()
  return HfConfig::of(flat, config.file());
}

/// Exports of EAGLE-3's lineage predict masks in place; the others predict the token behind a row.
Expected<void> set_anchor(const HfConfig& config, Metadata& meta) {
  const auto architecture = config.architecture();
  if (!architecture || architecture->find("DSpark") == std::string::npos) return {};
  const bool inner = config.contains("transformer_layer_config") || config.contains("aux_hidden_state_layer_ids");
  DLLM_TRY(const bool own, config.boolean_or("sample_from_anchor", !inner));
  meta.set("dflash.sample_from_anchor", MetaValue::boolean(own));
  return {};
}

Expected<void> set_choice(const HfConfig& config, Metadata& meta) {
  for (const char* key : {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    DLLM_TRY(const std::int64_t value, drafter_config(config, key).integer_or(key, 0));
    if (value > 0) meta.set(fmt::format("dflash.{}", key), MetaValue::u32(static_cast<std::uint32_t>(value)));
  }
  for (const auto& [key, tail] :
       {std::pair("input_embedding_scale", "embedding_scale"), std::pair("output_multiplier", "logit_scale"),
        std::pair("final_logit_softcapping", "final_logit_softcapping")}) {
    DLLM_TRY(const double value, drafter_config(config, key).number_or(key, 0));
    if (value != 0) meta.set(fmt::format("dflash.{}", tail), MetaValue::f32(static_cast<float>(value)));
  }
  return {};
}

}  // namespace

Expected<Metadata> drafter_metadata(const HfConfig& given) {
  DLLM_TRY(const HfConfig config, flat_config(given));
  DLLM_CHECK_OK(check_layers(config));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kQwen3HfDefaults));
  Metadata meta = dense_metadata("dflash", dims);
  DLLM_TRY(const std::int64_t count, config.integer_or("num_target_layers", 0));
  if (count > 0) meta.set("dflash.target_block_count", MetaValue::u32(static_cast<std::uint32_t>(count)));
  DLLM_TRY(std::vector<std::int64_t> ids, target_layers(config, count, dims.layers));
  std::vector<std::int32_t> inputs;
  for (const std::int64_t id : ids) inputs.push_back(static_cast<std::int32_t>(id + 1));
  meta.set("dflash.target_layers", MetaValue::i32s(inputs));
  DLLM_TRY(const std::int64_t block, drafter_config(config, "block_size").integer_or("block_size", 16));
  meta.set("dflash.block_size", MetaValue::u32(static_cast<std::uint32_t>(block)));
  DLLM_TRY(const std::int64_t mask, drafter_config(config, "mask_token_id").integer("mask_token_id"));
  meta.set("tokenizer.ggml.mask_token_id", MetaValue::u32(static_cast<std::uint32_t>(mask)));
  DLLM_CHECK_OK(set_masks(config, dims.layers, meta));
  DLLM_CHECK_OK(set_anchor(given, meta));
  DLLM_CHECK_OK(set_choice(config, meta));
  return meta;
}

std::vector<TensorRename> drafter_renames() {
  std::vector<TensorRename> renames = qwen3_renames(false);
  for (TensorRename& rename : renames)
    if (rename.hf.starts_with("model.")) rename.hf.erase(0, 6);
  const std::vector<TensorRename> own = {{"fc", "fc"},
                                         {"hidden_norm", "enc.output_norm"},
                                         {"layers.{}.attention_conv.base_kernel", "blk.{}.attn_conv_base"},
                                         {"layers.{}.attention_conv.kernel_projection", "blk.{}.attn_conv_proj"},
                                         {"layers.{}.mlp_conv.base_kernel", "blk.{}.ffn_conv_base"},
                                         {"layers.{}.mlp_conv.kernel_projection", "blk.{}.ffn_conv_proj"},
                                         {"candidate_selector.predecessor_codebook", "selector_predecessor.weight"},
                                         {"candidate_selector.successor_codebook", "selector_successor.weight"},
                                         {"candidate_selector.hidden_projection", "selector_hidden"},
                                         {"markov_head.markov_w1", "markov_w1"},
                                         {"markov_head.markov_w2", "markov_w2"},
                                         {"confidence_head.proj", "conf_proj"}};
  renames.insert(renames.end(), own.begin(), own.end());
  // Some folders have "model." in front of every name.
  std::vector<TensorRename> both;
  for (const TensorRename& rename : renames) {
    both.push_back(rename);
    both.push_back({"model." + rename.hf, rename.gguf});
  }
  return both;
}

}  // namespace dllm
