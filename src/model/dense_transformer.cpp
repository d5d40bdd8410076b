#include "model/dense_transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "graph/builder.h"
#include "model/expert_layer.h"
#include "model/rope_op.h"

namespace dllm {
namespace {

/// Builds layer after layer over a shared residual stream.
class DenseBuilder {
 public:
  DenseBuilder(const ModelDesc& desc, StepShape shape) : desc_(desc), b_(shape) {}

  Graph build() {
    const WeightId table = b_.weight("token_embd.weight", {desc_.width, desc_.vocab});
    // One optional tensor for all layers, as in the files.
    rope_factors_ = b_.optional_weight("rope_freqs.weight", {desc_.rope_dims / 2});
    ValueId x = b_.embed(table, "embd");
    for (std::int64_t layer = 0; layer < desc_.layers; ++layer) {
      x = feed_forward(attention(x, layer), layer);
      if (std::ranges::count(desc_.hidden_layers, layer) > 0) b_.hidden_out(x);
    }
    x = b_.gather_scored(x, "scored");
    x = b_.rms_norm(x, b_.weight("output_norm.weight", {desc_.width}), desc_.norm_eps, "output_norm");
    const WeightId head = desc_.tied_embeddings ? table : b_.weight("output.weight", {desc_.width, desc_.vocab});
    const Shape biases{desc_.vocab};
    b_.score_head(x, head,
                  desc_.plain_ffn ? b_.weight("output.bias", biases) : b_.optional_weight("output.bias", biases));
    return b_.take();
  }

 private:
  static std::string name(std::int64_t layer, std::string_view part) { return fmt::format("blk.{}.{}", layer, part); }

  ValueId linear(ValueId x, std::int64_t layer, std::string_view part, std::int64_t in, std::int64_t out,
                 bool needs_bias = false) {
    const WeightId weight = b_.weight(name(layer, part) + ".weight", {in, out});
    const std::string bias_name = name(layer, part) + ".bias";
    const WeightId bias = needs_bias ? b_.weight(bias_name, {out}) : b_.optional_weight(bias_name, {out});
    return b_.linear(x, weight, name(layer, part), bias);
  }

  ValueId rope(ValueId x, std::int64_t heads, const PositionScaling& growth, std::string rope_name) {
    op::Rope rope = rope_of(desc_, heads);
    rope.factors = rope_factors_;
    rope.growth = growth;
    return b_.rope(x, rope, std::move(rope_name));
  }

  /// A norm of each head; the heads share the gain.
  ValueId head_norm(ValueId x, std::int64_t layer, std::string_view part, std::int64_t heads) {
    if (!desc_.qk_norm) return x;
    const WeightId gain = b_.weight(name(layer, part) + ".weight", {desc_.head_dim});
    return b_.rms_norm(x, gain, desc_.norm_eps, name(layer, part), static_cast<std::int32_t>(heads));
  }

  ValueId attention(ValueId x, std::int64_t layer) {
    const std::int64_t q_width = desc_.heads * desc_.head_dim;
    const std::int64_t kv_width = desc_.kv_heads * desc_.head_dim;
    const WeightId gain = b_.weight(name(layer, "attn_norm.weight"), {desc_.width});
    const ValueId normed = b_.rms_norm(x, gain, desc_.norm_eps, name(layer, "attn_norm"));
    const ValueId q = linear(normed, layer, "attn_q", desc_.width, q_width, desc_.qkv_bias);
    const ValueId k = linear(normed, layer, "attn_k", desc_.width, kv_width, desc_.qkv_bias);
    const ValueId v = linear(normed, layer, "attn_v", desc_.width, kv_width, desc_.qkv_bias);
    const ValueId q_normed = head_norm(q, layer, "attn_q_norm", desc_.heads);
    const ValueId k_normed = head_norm(k, layer, "attn_k_norm", desc_.kv_heads);
    const ValueId q_rot = b_.hadamard(rope(q_normed, desc_.heads, desc_.query_growth, name(layer, "attn_q_rope")),
                                      desc_.online.query_key, name(layer, "attn_q_hadamard"));
    const ValueId k_rot = b_.hadamard(rope(k_normed, desc_.kv_heads, {}, name(layer, "attn_k_rope")),
                                      desc_.online.query_key, name(layer, "attn_k_hadamard"));
    b_.store_kv(k_rot, v, static_cast<std::int32_t>(layer));
    const ValueId mixed =
        b_.attention(q_rot,
                     {.q = kNoId,
                      .layer = static_cast<std::int32_t>(layer),
                      .heads = static_cast<std::int32_t>(desc_.heads),
                      .kv_heads = static_cast<std::int32_t>(desc_.kv_heads),
                      .head_dim = static_cast<std::int32_t>(desc_.head_dim),
                      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(desc_.head_dim))),
                      .out = kNoId},
                     name(layer, "attn_mix"));
    return b_.add(x, linear(mixed, layer, "attn_output", q_width, desc_.width), name(layer, "attn_residual"));
  }

  ValueId feed_forward(ValueId x, std::int64_t layer) {
    const WeightId gain = b_.weight(name(layer, "ffn_norm.weight"), {desc_.width});
    const ValueId normed = b_.rms_norm(x, gain, desc_.norm_eps, name(layer, "ffn_norm"));
    const bool has_experts = desc_.experts.count > 0 && layer >= desc_.experts.leading_dense;
    const ValueId out = has_experts ? build_expert_layer(b_, desc_, normed, layer) : dense(normed, layer);
    return b_.add(x, out, name(layer, "ffn_residual"));
  }

  ValueId down(ValueId act, std::int64_t layer, bool needs_bias = false) {
    const std::int64_t order = desc_.online.down;
    const ValueId rotated = b_.hadamard(act, order, name(layer, "ffn_hadamard"));
    return linear(rotated, layer, down_name("ffn_down", order), desc_.ffn_width, desc_.width, needs_bias);
  }

  ValueId dense(ValueId x, std::int64_t layer) {
    if (desc_.plain_ffn) {
      const ValueId wide = linear(x, layer, "ffn_up", desc_.width, desc_.ffn_width, true);
      const ValueId act = b_.glu(wide, kNoId, name(layer, "ffn_act"), Activation::kGeluTanh);
      return down(act, layer, true);
    }
    const ValueId gate = linear(x, layer, "ffn_gate", desc_.width, desc_.ffn_width);
    const ValueId up = linear(x, layer, "ffn_up", desc_.width, desc_.ffn_width);
    return down(b_.glu(gate, up, name(layer, "ffn_act")), layer);
  }

  const ModelDesc& desc_;
  GraphBuilder b_;
  WeightId rope_factors_ = kNoId;
};

}  // namespace

Graph build_dense_transformer(const ModelDesc& desc, StepShape shape) { return DenseBuilder(desc, shape).build(); }

Metadata dense_metadata(std::string_view arch, const DenseDims& dims) {
  const auto u32 = [](std::int64_t v) { return MetaValue::u32(static_cast<std::uint32_t>(v)); };
  const auto key = [arch](std::string_view tail) { return fmt::format("{}.{}", arch, tail); };
  Metadata meta;
  meta.set(key("block_count"), u32(dims.layers));
  meta.set(key("context_length"), u32(dims.context_length));
  meta.set(key("embedding_length"), u32(dims.width));
  meta.set(key("feed_forward_length"), u32(dims.ffn_width));
  meta.set(key("attention.head_count"), u32(dims.heads));
  meta.set(key("attention.head_count_kv"), u32(dims.kv_heads));
  meta.set(key("rope.freq_base"), MetaValue::f32(static_cast<float>(dims.rope_theta)));
  meta.set(key("attention.layer_norm_rms_epsilon"), MetaValue::f32(static_cast<float>(dims.norm_eps)));
  if (dims.head_dim * dims.heads != dims.width) {
    meta.set(key("attention.key_length"), u32(dims.head_dim));
    meta.set(key("attention.value_length"), u32(dims.head_dim));
  }
  meta.set(key("vocab_size"), u32(dims.vocab));
  meta.set(key("rope.dimension_count"), u32(dims.head_dim));
  set_rope_metadata(arch, dims.rope, meta);
  return meta;
}

Expected<DenseDims> dense_dims_from_hf(const HfConfig& config, const HfDefaults& defaults,
                                       std::optional<std::int64_t> ffn_width) {
  DenseDims dims{};
  DLLM_CHECK_OK(config.expect("hidden_act", "silu"));
  DLLM_CHECK_OK(config.expect("mlp_bias", false));
  DLLM_CHECK_OK(config.expect("use_sliding_window", false));
  DLLM_TRY(dims.vocab, config.integer("vocab_size"));
  DLLM_TRY(dims.width, config.integer("hidden_size"));
  DLLM_TRY(dims.layers, config.integer("num_hidden_layers"));
  DLLM_TRY(dims.heads, config.integer("num_attention_heads"));
  const bool omits_kv = defaults.kv_heads > 0 && !config.json().contains("num_key_value_heads");
  DLLM_TRY(dims.kv_heads, config.integer_or("num_key_value_heads", omits_kv ? defaults.kv_heads : dims.heads));
  const bool omits_dim = defaults.head_dim > 0 && !config.json().contains("head_dim");
  const bool named_dim = omits_dim || config.contains("head_dim");
  if (dims.heads <= 0 || (!named_dim && dims.width % dims.heads != 0))
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", dims.width, dims.heads),
                 config.file(), ""};
  DLLM_TRY(dims.head_dim, config.integer_or("head_dim", omits_dim ? defaults.head_dim : dims.width / dims.heads));
  DLLM_TRY(dims.ffn_width,
           ffn_width ? config.integer_or("intermediate_size", *ffn_width) : config.integer("intermediate_size"));
  DLLM_TRY(dims.context_length, config.integer_or("max_position_embeddings", defaults.context_length));
  DLLM_TRY(dims.norm_eps, config.number_or("rms_norm_eps", defaults.norm_eps));
  DLLM_TRY(dims.rope, rope_from_hf(config, defaults.rope_theta));
  DLLM_TRY(const double share, config.number_or("partial_rotary_factor", 1.0));
  if (defaults.whole_heads && dims.rope.rotated_share.value_or(share) != 1)
    return Error{ErrorCode::kUnsupported, "'partial_rotary_factor' is set, and this architecture turns whole heads",
                 config.file(), ""};
  dims.rope_theta = dims.rope.theta;
  return dims;
}

std::vector<TensorRename> dense_renames(bool qk_norm, const std::vector<TensorRename>& experts) {
  std::vector<TensorRename> all = {
      {"model.embed_tokens", "token_embd"},
      {"model.layers.{}.input_layernorm", "blk.{}.attn_norm"},
      {"model.layers.{}.self_attn.q_proj", "blk.{}.attn_q"},
      {"model.layers.{}.self_attn.k_proj", "blk.{}.attn_k"},
      {"model.layers.{}.self_attn.v_proj", "blk.{}.attn_v"},
  };
  const auto append = [&all](const std::vector<TensorRename>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  if (qk_norm)
    append({{"model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm"},
            {"model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm"}});
  append({{"model.layers.{}.self_attn.o_proj", "blk.{}.attn_output"},
          {"model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"},
          {"model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"},
          {"model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"},
          {"model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"}});
  append(experts);
  append({{"model.norm", "output_norm"}, {"lm_head", "output"}});
  return all;
}

}  // namespace dllm
