// Hugging Face checkpoints of DiffusionGemma: config.json and names of tensors.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/diffusion_gemma.h"
#include "model/key_reader.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

Error invalid(const HfConfig& config, std::string what, ErrorCode code = ErrorCode::kInvalidFile) {
  return {code, std::move(what), config.file(), ""};
}

/// The language model's part of config.json.
Expected<HfConfig> text_config(const HfConfig& config) {
  const auto it = config.json().find("text_config");
  if (it == config.json().end() || !it->is_object()) return invalid(config, "'text_config' is missing");
  return HfConfig::of(*it, config.file() + ", text_config");
}

/// By layer: it has a sliding window.
Expected<std::vector<bool>> layer_kinds(const HfConfig& text, std::int64_t layers) {
  std::vector<bool> slides;
  if (!text.contains("layer_types")) {  // transformers' default: every sixth layer is global, and so is the last
    for (std::int64_t layer = 0; layer < layers; ++layer) slides.push_back((layer + 1) % 6 != 0 && layer + 1 < layers);
    return slides;
  }
  const Json& types = text.json()["layer_types"];
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers)
    return invalid(text, fmt::format("'layer_types' does not name {} layers", layers));
  for (const Json& type : types) {
    if (type != "sliding_attention" && type != "full_attention")
      return invalid(text, fmt::format("'layer_types' holds {}", type.dump()), ErrorCode::kUnsupported);
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

struct Heads {
  std::int64_t dim = 0, kv_heads = 0;
};

/// For global layers: `global_head_dim` and `num_global_key_value_heads`, or their replacement in transformers 5.2x and
/// later, `per_layer_config` by layer.
Expected<Heads> global_heads(const HfConfig& text, std::int64_t kv_heads, const std::vector<bool>& slides) {
  Heads heads;
  DLLM_TRY(heads.dim, text.integer_or("global_head_dim", 512));
  DLLM_TRY(heads.kv_heads, text.integer_or("num_global_key_value_heads", kv_heads));
  if (!text.contains("per_layer_config")) return heads;
  const Json& by_layer = text.json()["per_layer_config"];
  if (!by_layer.is_object()) return invalid(text, "'per_layer_config' is not an object");
  for (std::size_t layer = 0; layer < slides.size(); ++layer) {
    const auto own = by_layer.find(std::to_string(layer));
    if (own == by_layer.end()) continue;
    if (!own->is_object()) return invalid(text, "'per_layer_config' holds no objects");
    const HfConfig config = HfConfig::of(*own, fmt::format("{}, layer {}", text.file(), layer));
    DLLM_TRY(const std::int64_t dim, config.integer_or("head_dim", heads.dim));
    DLLM_TRY(const std::int64_t count, config.integer_or("num_key_value_heads", kv_heads));
    if (slides[layer]) return invalid(config, "a sliding layer departs from the others", ErrorCode::kUnsupported);
    heads = {dim, count};
  }
  return heads;
}

/// theta of one kind of layer; `share`: the fraction of pairs that rotate.
struct Rope {
  double theta = 0, share = 1;
};

Expected<Rope> rope_of(const HfConfig& text, std::string_view kind, Rope defaults, std::string_view wanted_type) {
  const auto all = text.json().find("rope_parameters");
  if (all == text.json().end() || all->is_null()) return defaults;
  const auto it = all->is_object() ? all->find(kind) : all->end();
  if (!all->is_object() || it == all->end()) return invalid(text, fmt::format("'rope_parameters' has no '{}'", kind));
  if (!it->is_object()) return invalid(text, fmt::format("'rope_parameters.{}' is no object", kind));
  const HfConfig own = HfConfig::of(*it, fmt::format("{}, rope_parameters.{}", text.file(), kind));
  DLLM_CHECK_OK(own.expect("rope_type", std::string(wanted_type)));
  DLLM_CHECK_OK(own.expect("factor", 1.0));
  Rope rope;
  DLLM_TRY(rope.theta, own.number_or("rope_theta", defaults.theta));
  DLLM_TRY(rope.share, own.number_or("partial_rotary_factor", 1.0));
  return rope;
}

Expected<void> check_switches(const HfConfig& config, const HfConfig& text) {
  DLLM_CHECK_OK(config.expect("tie_word_embeddings", true));
  DLLM_CHECK_OK(text.expect("hidden_activation", "gelu_pytorch_tanh"));
  DLLM_CHECK_OK(text.expect("attention_bias", false));
  DLLM_CHECK_OK(text.expect("attention_k_eq_v", true));
  // "vision" concerns image tokens only, "all" the whole prompt.
  DLLM_CHECK_OK(text.expect("use_bidirectional_attention", "vision"));
  DLLM_CHECK_OK(text.expect("num_kv_shared_layers", 0));
  DLLM_CHECK_OK(text.expect("hidden_size_per_layer_input", 0));
  return text.expect("enable_moe_block", true);
}

/// The sampler's settings in generation_config.json; absent ones are the loop's defaults.
Expected<void> set_sampler(const HfConfig& config, Metadata& meta) {
  const auto it = config.json().find("generation_config");
  if (it == config.json().end()) return {};
  const HfConfig generation = HfConfig::of(*it, "generation_config.json");
  const auto integer = [&](const HfConfig& from, std::string_view key, std::string_view gguf) -> Expected<void> {
    DLLM_TRY(const auto value, from.optional_integer(key));
    if (value && (*value < 0 || *value > kMaxModelDim)) return invalid(from, fmt::format("'{}' is {}", key, *value));
    if (value) meta.set(fmt::format("diffusion.eb_{}", gguf), MetaValue::u32(static_cast<std::uint32_t>(*value)));
    return {};
  };
  const auto number = [&](const HfConfig& from, std::string_view key, std::string_view gguf) -> Expected<void> {
    if (!from.contains(key)) return {};
    DLLM_TRY(const double value, from.number_or(key, 0));
    meta.set(fmt::format("diffusion.eb_{}", gguf), MetaValue::f32(static_cast<float>(value)));
    return {};
  };
  DLLM_CHECK_OK(integer(generation, "max_denoising_steps", "max_steps"));
  DLLM_CHECK_OK(number(generation, "t_min", "t_min"));
  DLLM_CHECK_OK(number(generation, "t_max", "t_max"));
  DLLM_CHECK_OK(integer(generation, "stability_threshold", "stability_threshold"));
  DLLM_CHECK_OK(number(generation, "confidence_threshold", "confidence_threshold"));
  if (!generation.contains("sampler_config")) return {};
  DLLM_TRY(const HfConfig sampler,
           HfConfig::parse(generation.json()["sampler_config"].dump(), "generation_config.json, sampler_config"));
  DLLM_CHECK_OK(sampler.expect("_cls_name", "EntropyBoundSamplerConfig"));
  return number(sampler, "entropy_bound", "entropy_bound");
}

}  // namespace

Expected<Metadata> diffusion_gemma_metadata(const HfConfig& config) {
  DLLM_TRY(const HfConfig text, text_config(config));
  DLLM_CHECK_OK(check_switches(config, text));
  Metadata meta;
  const auto set = [&meta](std::string_view tail, MetaValue value) {
    meta.set(fmt::format("diffusion-gemma.{}", tail), std::move(value));
  };
  const auto u32 = [](std::int64_t v) { return MetaValue::u32(static_cast<std::uint32_t>(v)); };
  const auto copy = [&](std::string_view tail, std::string_view key) -> Expected<void> {
    DLLM_TRY(const std::int64_t value, text.integer(key));
    if (value < 0 || value > kMaxModelDim) return invalid(text, fmt::format("'{}' is {}", key, value));
    set(tail, u32(value));
    return {};
  };
  DLLM_TRY(const std::int64_t layers, text.integer("num_hidden_layers"));
  if (layers < 1 || layers > 4096) return invalid(text, fmt::format("{} layers", layers));
  DLLM_TRY(const std::int64_t kv_heads, text.integer("num_key_value_heads"));
  DLLM_TRY(const std::int64_t head_dim, text.integer("head_dim"));
  DLLM_TRY(const std::vector<bool> slides, layer_kinds(text, layers));
  DLLM_TRY(const Heads global, global_heads(text, kv_heads, slides));
  DLLM_TRY(const Rope global_rope, rope_of(text, "full_attention", {1e6, kGemmaRotatedShare}, "proportional"));
  DLLM_TRY(const Rope sliding_rope, rope_of(text, "sliding_attention", {1e4, 1}, "default"));
  if (sliding_rope.share != 1) return invalid(text, "sliding layers rotate heads in part", ErrorCode::kUnsupported);

  DLLM_CHECK_OK(copy("block_count", "num_hidden_layers"));
  DLLM_CHECK_OK(copy("context_length", "max_position_embeddings"));
  DLLM_CHECK_OK(copy("embedding_length", "hidden_size"));
  DLLM_CHECK_OK(copy("feed_forward_length", "intermediate_size"));
  DLLM_CHECK_OK(copy("attention.head_count", "num_attention_heads"));
  std::vector<std::int32_t> kv_by_layer;
  for (const bool slide : slides) kv_by_layer.push_back(static_cast<std::int32_t>(slide ? kv_heads : global.kv_heads));
  set("attention.head_count_kv", MetaValue::i32s(kv_by_layer));
  set("rope.freq_base", MetaValue::f32(static_cast<float>(global_rope.theta)));
  set("rope.freq_base_swa", MetaValue::f32(static_cast<float>(sliding_rope.theta)));
  DLLM_TRY(const double eps, text.number_or("rms_norm_eps", 1e-6));
  set("attention.layer_norm_rms_epsilon", MetaValue::f32(static_cast<float>(eps)));
  DLLM_CHECK_OK(copy("expert_count", "num_experts"));
  DLLM_CHECK_OK(copy("expert_used_count", "top_k_experts"));
  set("attention.key_length", u32(global.dim));
  set("attention.value_length", u32(global.dim));
  DLLM_CHECK_OK(copy("vocab_size", "vocab_size"));
  DLLM_TRY(const double cap, text.number_or("final_logit_softcapping", 30.0));
  set("final_logit_softcapping", MetaValue::f32(static_cast<float>(cap)));
  DLLM_CHECK_OK(copy("attention.sliding_window", "sliding_window"));
  set("attention.shared_kv_layers", u32(0));
  set("embedding_length_per_layer_input", u32(0));
  set("attention.sliding_window_pattern", MetaValue::bools(slides));
  set("attention.key_length_swa", u32(head_dim));
  set("attention.value_length_swa", u32(head_dim));
  DLLM_CHECK_OK(copy("expert_feed_forward_length", "moe_intermediate_size"));
  set("rope.dimension_count", u32(global.dim));
  set("rope.dimension_count_swa", u32(head_dim));
  set("attention.causal", MetaValue::boolean(false));
  DLLM_TRY(const std::int64_t canvas, config.integer_or("canvas_length", 256));
  meta.set("diffusion.canvas_length", u32(canvas));
  DLLM_CHECK_OK(set_sampler(config, meta));
  return meta;
}

Expected<std::vector<GeneratedTensor>> diffusion_gemma_tensors(const HfConfig& config) {
  DLLM_TRY(const HfConfig text, text_config(config));
  DLLM_TRY(const std::int64_t layers, text.integer("num_hidden_layers"));
  DLLM_TRY(const std::int64_t kv_heads, text.integer("num_key_value_heads"));
  DLLM_TRY(const std::vector<bool> slides, layer_kinds(text, layers));
  if (std::ranges::all_of(slides, [](bool slide) { return slide; })) return std::vector<GeneratedTensor>();
  DLLM_TRY(const Heads global, global_heads(text, kv_heads, slides));
  DLLM_TRY(const Rope rope, rope_of(text, "full_attention", {1e6, kGemmaRotatedShare}, "proportional"));
  const auto turning = static_cast<std::int64_t>(rope.share * static_cast<double>(global.dim)) / 2;
  if (global.dim < 2 || global.dim > kMaxModelDim || turning < 0 || turning > global.dim / 2)
    return invalid(text, fmt::format("{} of {} RoPE pairs are rotated", turning, global.dim / 2));
  GeneratedTensor factors{"rope_freqs.weight", {}};
  for (std::int64_t pair = 0; pair < global.dim / 2; ++pair) factors.values.push_back(pair < turning ? 1.f : 1e30f);
  return std::vector<GeneratedTensor>{std::move(factors)};
}

std::vector<TensorRename> diffusion_gemma_renames() {
  std::vector<TensorRename> all = {{"model.decoder.embed_tokens", "token_embd"}};
  const auto layer = [&all](std::string_view hf, std::string_view gguf) {
    all.push_back({fmt::format("model.decoder.layers.{{}}.{}", hf), fmt::format("blk.{{}}.{}", gguf)});
  };
  all.push_back({"model.decoder.self_conditioning.pre_norm", "self_cond_pre_norm"});
  for (const char* part : {"gate", "up", "down"})
    all.push_back({fmt::format("model.decoder.self_conditioning.{}_proj", part), fmt::format("self_cond_{}", part)});
  layer("input_layernorm", "attn_norm");
  for (const char* part : {"q", "k", "v"}) layer(fmt::format("self_attn.{}_proj", part), fmt::format("attn_{}", part));
  layer("self_attn.q_norm", "attn_q_norm");
  layer("self_attn.k_norm", "attn_k_norm");
  layer("self_attn.o_proj", "attn_output");
  layer("post_attention_layernorm", "post_attention_norm");
  layer("pre_feedforward_layernorm", "ffn_norm");
  for (const char* part : {"gate", "up", "down"}) layer(fmt::format("mlp.{}_proj", part), fmt::format("ffn_{}", part));
  layer("post_feedforward_layernorm_1", "post_ffw_norm_1");
  layer("router.proj", "ffn_gate_inp");
  layer("router.scale", "ffn_gate_inp.scale");
  layer("pre_feedforward_layernorm_2", "pre_ffw_norm_2");
  layer("experts.gate_up_proj", "ffn_gate_up_exps.weight");
  layer("experts.down_proj", "ffn_down_exps.weight");
  layer("router.per_expert_scale", "ffn_down_exps.scale");
  layer("post_feedforward_layernorm_2", "post_ffw_norm_2");
  layer("post_feedforward_layernorm", "post_ffw_norm");
  layer("layer_scalar", "layer_output_scale.weight");
  all.push_back({"model.encoder.language_model.layers.{}.layer_scalar", "blk.{}.enc_layer_output_scale.weight"});
  all.push_back({"model.decoder.norm", "output_norm"});
  all.push_back({"lm_head", "output"});
  return all;
}

}  // namespace dllm
