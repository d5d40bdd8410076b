// DiffusionGemma (26B-A4B): Gemma 4's mixture-of-experts body, used in two ways. The context (prompt and finished
// canvases) runs causally. The canvas of random tokens sees the context and all of itself; it starts from normalized
// embeddings, to which the previous pass's prediction is fed back, and has its own layer scalars. Sources:
// transformers' description of the model (models/diffusion_gemma, models/gemma4) for the network, llama.cpp's pull
// requests #24423 and #24427 for names in GGUF files.
#include "model/diffusion_gemma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "graph/builder.h"
#include "model/key_reader.h"

namespace dllm {
namespace {

class GemmaBuilder {
 public:
  GemmaBuilder(const ModelDesc& desc, StepShape shape) : desc_(desc), b_(shape) {}

  Graph build() {
    const WeightId table = b_.weight("token_embd.weight", {desc_.width, desc_.vocab});
    for (std::int64_t layer = 0; layer < desc_.layers && rope_freqs_ == kNoId; ++layer)
      if (!desc_.sliding.has(layer)) rope_freqs_ = b_.weight("rope_freqs.weight", {desc_.rope_dims / 2});
    ValueId x = embeddings(table);
    for (std::int64_t layer = 0; layer < desc_.layers; ++layer) x = feed_forward(attention(x, layer), layer);
    x = norm(b_.gather_scored(x, "scored"), "output_norm");
    const WeightId head = desc_.tied_embeddings ? table : b_.weight("output.weight", {desc_.width, desc_.vocab});
    b_.score_head(x, head, kNoId, desc_.logit_softcap);
    return b_.take();
  }

 private:
  static std::string name(std::int64_t layer, std::string_view part) { return fmt::format("blk.{}.{}", layer, part); }

  ValueId norm(ValueId x, const std::string& gain) {
    return b_.rms_norm(x, b_.weight(gain + ".weight", {desc_.width}), desc_.norm_eps, gain);
  }
  ValueId linear(ValueId x, const std::string& matrix, std::int64_t in, std::int64_t out) {
    return b_.linear(x, b_.weight(matrix + ".weight", {in, out}), matrix);
  }
  /// down(gelu(gate x) * up x), with tensors `prefix` + gate, up, down.
  ValueId gated(ValueId x, const std::string& prefix) {
    const ValueId gate = linear(x, prefix + "gate", desc_.width, desc_.ffn_width);
    const ValueId up = linear(x, prefix + "up", desc_.width, desc_.ffn_width);
    return linear(b_.glu(gate, up, prefix + "act", Activation::kGeluTanh), prefix + "down", desc_.ffn_width,
                  desc_.width);
  }

  /// Context rows: E[token]. Canvas rows: norm(E[token] + gated(norm(expected embedding of the last prediction))). All
  /// embeddings are multiplied by sqrt(width). Without a prediction the feedback term is zero.
  ValueId embeddings(WeightId table) {
    const auto scale = static_cast<float>(std::sqrt(static_cast<double>(desc_.width)));
    const ValueId token = b_.embed(table, "embd", scale, EmbedPart::kToken);
    const ValueId expected = b_.embed(table, "self_cond_expected", scale, EmbedPart::kMixture);
    const ValueId fed_back = gated(norm(expected, "self_cond_pre_norm"), "self_cond_");
    const ValueId canvas =
        b_.rms_norm(b_.add(token, fed_back, "self_cond_sum"), kNoId, desc_.norm_eps, "self_cond_post_norm");
    return b_.select(canvas, token, "embd_region");
  }

  ValueId head_norm(ValueId x, WeightId gain, std::int64_t heads, std::string value) {
    return b_.rms_norm(x, gain, desc_.norm_eps, std::move(value), static_cast<std::int32_t>(heads));
  }

  /// There is also a norm after attention. Global layers have no V: it is K before its norm and RoPE. V's norm has no
  /// gain. There is no factor 1 / sqrt(head_dim): the norms of q and k replace it.
  ValueId attention(ValueId x, std::int64_t layer) {
    const bool slides = desc_.sliding.has(layer);
    const std::int64_t head_dim = slides ? desc_.sliding.head_dim : desc_.head_dim;
    const std::int64_t kv_heads = slides ? desc_.sliding.kv_heads : desc_.kv_heads;
    const auto rope = [&](ValueId from, std::int64_t heads, std::string value) {
      return b_.rope(from,
                     {.x = kNoId,
                      .heads = static_cast<std::int32_t>(heads),
                      .head_dim = static_cast<std::int32_t>(head_dim),
                      .dims = static_cast<std::int32_t>(slides ? desc_.sliding.rope_dims : desc_.rope_dims),
                      .layout = RopeLayout::kHalfSplit,
                      .theta = slides ? desc_.sliding.rope_theta : desc_.rope_theta,
                      .scale = 1.f,
                      .factors = slides ? kNoId : rope_freqs_,
                      .out = kNoId},
                     std::move(value));
    };
    const ValueId normed = norm(x, name(layer, "attn_norm"));
    const ValueId q = linear(normed, name(layer, "attn_q"), desc_.width, desc_.heads * head_dim);
    const ValueId k = linear(normed, name(layer, "attn_k"), desc_.width, kv_heads * head_dim);
    const ValueId v = slides ? linear(normed, name(layer, "attn_v"), desc_.width, kv_heads * head_dim) : k;
    const WeightId q_gain = b_.weight(name(layer, "attn_q_norm.weight"), {head_dim});
    const WeightId k_gain = b_.weight(name(layer, "attn_k_norm.weight"), {head_dim});
    const ValueId q_normed = head_norm(q, q_gain, desc_.heads, name(layer, "attn_q_norm"));
    const ValueId v_normed = head_norm(v, kNoId, kv_heads, name(layer, "attn_v_norm"));
    const ValueId k_normed = head_norm(k, k_gain, kv_heads, name(layer, "attn_k_norm"));
    const ValueId q_rot = rope(q_normed, desc_.heads, name(layer, "attn_q_rope"));
    b_.store_kv(rope(k_normed, kv_heads, name(layer, "attn_k_rope")), v_normed, static_cast<std::int32_t>(layer));
    const ValueId mixed = b_.attention(q_rot,
                                       {.q = kNoId,
                                        .layer = static_cast<std::int32_t>(layer),
                                        .heads = static_cast<std::int32_t>(desc_.heads),
                                        .kv_heads = static_cast<std::int32_t>(kv_heads),
                                        .head_dim = static_cast<std::int32_t>(head_dim),
                                        .scale = 1.f,
                                        .out = kNoId,
                                        .window = slides ? desc_.sliding.window : 0},
                                       name(layer, "attn_mix"));
    const ValueId out = linear(mixed, name(layer, "attn_output"), desc_.heads * head_dim, desc_.width);
    return b_.add(x, norm(out, name(layer, "post_attention_norm")), name(layer, "attn_residual"));
  }

  /// The router reads the residual stream itself, normalized without a gain, times a vector and 1 / sqrt(width).
  ValueId experts(ValueId x, std::int64_t layer) {
    const ExpertsDesc& e = desc_.experts;
    const WeightId input_scale = b_.weight(name(layer, "ffn_gate_inp.scale"), {desc_.width});
    const ValueId normed = b_.rms_norm(x, input_scale, desc_.norm_eps, name(layer, "ffn_router_norm"));
    const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(desc_.width)));
    const ValueId input =
        b_.scale(normed, {.x = kNoId, .factor = factor, .context = kNoId, .canvas = kNoId, .out = kNoId},
                 name(layer, "ffn_router_scale"));
    const ValueId logits = linear(input, name(layer, "ffn_gate_inp"), desc_.width, e.count);
    const WeightId expert_scale = b_.weight(name(layer, "ffn_down_exps.scale"), {e.count});
    const ValueId route = b_.route(logits,
                                   {.logits = kNoId,
                                    .bias = kNoId,
                                    .used = static_cast<std::int32_t>(e.used),
                                    .score = e.score,
                                    .groups = 0,
                                    .groups_used = 0,
                                    .capacity = 0,
                                    .block = 0,
                                    .normalize = e.normalize,
                                    .scale = e.scale,
                                    .out = kNoId,
                                    .expert_scale = expert_scale},
                                   name(layer, "ffn_route"));
    const WeightId gate = b_.weight(name(layer, "ffn_gate_exps.weight"), {desc_.width, e.width, e.count});
    const WeightId up = b_.weight(name(layer, "ffn_up_exps.weight"), {desc_.width, e.width, e.count});
    const WeightId down = b_.weight(name(layer, "ffn_down_exps.weight"), {e.width, desc_.width, e.count});
    const ValueId out = b_.experts(norm(x, name(layer, "pre_ffw_norm_2")),
                                   {.x = kNoId,
                                    .route = route,
                                    .gate = gate,
                                    .up = up,
                                    .down = down,
                                    .out = kNoId,
                                    .activation = Activation::kGeluTanh},
                                   name(layer, "ffn_exps"));
    return norm(out, name(layer, "post_ffw_norm_2"));
  }

  /// A dense part and experts in parallel, each with a norm before and after, and a norm of their sum; the layer's
  /// output is multiplied by a scalar that differs between the two regions.
  ValueId feed_forward(ValueId x, std::int64_t layer) {
    const ValueId dense =
        norm(gated(norm(x, name(layer, "ffn_norm")), name(layer, "ffn_")), name(layer, "post_ffw_norm_1"));
    const ValueId sum = b_.add(dense, experts(x, layer), name(layer, "ffn_sum"));
    const ValueId out = b_.add(x, norm(sum, name(layer, "post_ffw_norm")), name(layer, "ffn_residual"));
    const WeightId context = b_.weight(name(layer, "enc_layer_output_scale.weight"), {1});
    const WeightId canvas = b_.weight(name(layer, "layer_output_scale.weight"), {1});
    return b_.scale(out, {.x = kNoId, .factor = 1.f, .context = context, .canvas = canvas, .out = kNoId},
                    name(layer, "layer_out"));
  }

  const ModelDesc& desc_;
  GraphBuilder b_;
  WeightId rope_freqs_ = kNoId;
};

Graph build_diffusion_gemma(const ModelDesc& desc, StepShape shape) { return GemmaBuilder(desc, shape).build(); }

void set_diffusion_gemma_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.context_length = 262144;
  desc.experts.normalize = true;
}

Error wrong(const KeyReader& keys, std::string what, std::string_view tail, ErrorCode code = ErrorCode::kInvalidFile) {
  return {code, std::move(what), keys.key(tail), ""};
}

/// Which layers have a sliding window. Lists may be longer than the model (a cut one).
Expected<void> read_pattern(KeyReader& keys, ModelDesc& desc) {
  constexpr std::string_view kWindow = "attention.sliding_window", kPattern = "attention.sliding_window_pattern";
  DLLM_TRY(const auto window, keys.integer(kWindow));
  DLLM_TRY(const auto pattern, keys.booleans(kPattern));
  desc.sliding.layers.assign(static_cast<std::size_t>(desc.layers), false);
  if (!window || *window == 0) return {};
  if (*window < 2 || *window > kMaxModelDim) return wrong(keys, fmt::format("a window of {}", *window), kWindow);
  if (!pattern || pattern->size() < desc.sliding.layers.size())
    return wrong(keys, fmt::format("the list does not name the {} layers that have the window", desc.layers), kPattern);
  desc.sliding.window = static_cast<std::int32_t>(*window);
  for (std::size_t layer = 0; layer < desc.sliding.layers.size(); ++layer)
    desc.sliding.layers[layer] = (*pattern)[layer];
  return {};
}

/// One number for all layers, or a list by layer in which layers of the same kind agree.
Expected<void> read_kv_heads(KeyReader& keys, ModelDesc& desc) {
  constexpr std::string_view kTail = "attention.head_count_kv";
  std::vector<std::int64_t> heads(static_cast<std::size_t>(desc.layers), desc.heads);
  if (keys.is_list(kTail)) {
    DLLM_TRY(const auto list, keys.integers(kTail));
    if (list->size() < heads.size())
      return wrong(keys, fmt::format("{} numbers for {} layers", list->size(), desc.layers), kTail);
    heads.assign(list->begin(), list->begin() + desc.layers);
  } else {
    DLLM_TRY(const std::int64_t number, keys.dim(kTail, desc.heads));
    heads.assign(heads.size(), number);
  }
  desc.kv_heads = desc.sliding.kv_heads = 0;
  for (std::int64_t layer = 0; layer < desc.layers; ++layer) {
    const std::int64_t own = heads[static_cast<std::size_t>(layer)];
    std::int64_t& kind = desc.sliding.has(layer) ? desc.sliding.kv_heads : desc.kv_heads;
    if (own < 1 || desc.heads % own != 0)
      return wrong(keys, fmt::format("{} heads are not a multiple of {} kv heads", desc.heads, own), kTail);
    if (kind != 0 && kind != own)
      return wrong(keys, fmt::format("layer {} has {} kv heads, others of its kind {}", layer, own, kind), kTail,
                   ErrorCode::kUnsupported);
    kind = own;
  }
  if (desc.kv_heads == 0) desc.kv_heads = desc.sliding.kv_heads;
  return {};
}

Expected<void> read_sliding_heads(KeyReader& keys, ModelDesc& desc) {
  DLLM_TRY(desc.sliding.head_dim, keys.dim("attention.key_length_swa", desc.head_dim));
  DLLM_TRY(const std::int64_t values, keys.dim("attention.value_length_swa", desc.sliding.head_dim));
  if (values != desc.sliding.head_dim)
    return wrong(keys, fmt::format("value heads of {} differ from key heads", values), "attention.value_length_swa",
                 ErrorCode::kUnsupported);
  DLLM_TRY(desc.sliding.rope_dims, keys.dim("rope.dimension_count_swa", desc.sliding.head_dim));
  if (desc.sliding.rope_dims > desc.sliding.head_dim || desc.sliding.rope_dims % 2 != 0)
    return wrong(keys, fmt::format("{} rotated dims do not fit", desc.sliding.rope_dims), "rope.dimension_count_swa");
  DLLM_TRY(const auto theta, keys.number("rope.freq_base_swa"));
  if (theta) desc.sliding.rope_theta = static_cast<float>(*theta);
  if (!(desc.sliding.rope_theta > 0)) return wrong(keys, "no rope base", "rope.freq_base_swa");
  return {};
}

/// The sampler's keys have no architecture prefix: `diffusion.*`.
Expected<void> read_canvas(const Metadata& meta, CanvasDesc& canvas) {
  const auto bad = [](std::string_view key, auto value) {
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is out of range", value), std::string(key), ""};
  };
  const auto integer = [&](std::string_view key, std::int32_t least, std::int32_t& field) -> Expected<void> {
    DLLM_TRY(const auto value, meta.integer(key));
    if (!value) return {};
    if (*value < least || *value > kMaxModelDim) return bad(key, *value);
    field = static_cast<std::int32_t>(*value);
    return {};
  };
  const auto number = [&](std::string_view key, bool zero, double& field) -> Expected<void> {
    DLLM_TRY(const auto value, meta.number(key));
    if (!value) return {};
    if (!std::isfinite(*value) || *value < 0 || (*value == 0 && !zero)) return bad(key, *value);
    field = *value;
    return {};
  };
  DLLM_CHECK_OK(integer("diffusion.canvas_length", 1, canvas.length));
  if (canvas.length == 0) return Error{ErrorCode::kInvalidFile, "the key is missing", "diffusion.canvas_length", ""};
  DLLM_CHECK_OK(integer("diffusion.eb_max_steps", 1, canvas.max_steps));
  DLLM_CHECK_OK(number("diffusion.eb_t_min", false, canvas.t_min));
  DLLM_CHECK_OK(number("diffusion.eb_t_max", false, canvas.t_max));
  DLLM_CHECK_OK(number("diffusion.eb_entropy_bound", true, canvas.entropy_bound));
  DLLM_CHECK_OK(integer("diffusion.eb_stability_threshold", 0, canvas.stability));
  DLLM_CHECK_OK(number("diffusion.eb_confidence_threshold", true, canvas.confidence));
  if (canvas.t_max < canvas.t_min) return bad("diffusion.eb_t_max", canvas.t_max);
  return {};
}

Expected<void> read_layers(KeyReader& keys, ModelDesc& desc) {
  DLLM_CHECK_OK(read_pattern(keys, desc));
  DLLM_CHECK_OK(read_kv_heads(keys, desc));
  DLLM_CHECK_OK(read_sliding_heads(keys, desc));
  DLLM_TRY(const auto cap, keys.number("final_logit_softcapping"));
  if (cap) desc.logit_softcap = static_cast<float>(*cap);
  if (!(desc.logit_softcap >= 0)) return wrong(keys, "no cap", "final_logit_softcapping");
  for (std::string_view tail : {"attention.shared_kv_layers", "embedding_length_per_layer_input"}) {
    DLLM_TRY(const auto value, keys.integer(tail));
    if (value && *value != 0) return wrong(keys, fmt::format("{} is {}", tail, *value), tail, ErrorCode::kUnsupported);
  }
  if (desc.experts.shared_width != 0 || desc.experts.leading_dense != 0 || desc.experts.capacity != 0 ||
      desc.experts.groups > 1)
    return wrong(keys, "no published model of this name has it", "expert_*", ErrorCode::kUnsupported);
  if (desc.causal_block != 0)
    return wrong(keys, "the model would be autoregressive", "attention.causal", ErrorCode::kUnsupported);
  return read_canvas(keys.metadata(), desc.canvas);
}

}  // namespace

Architecture diffusion_gemma_architecture() {
  return {.name = "diffusion-gemma",
          .hf_architectures = {"DiffusionGemmaForBlockDiffusion", "DiffusionGemma4ModelForBlockDiffusion"},
          .experts = true,
          .set_defaults = set_diffusion_gemma_defaults,
          .read_layers = read_layers,
          .stop_texts = {"<eos>", "<turn|>"},
          .build = build_diffusion_gemma,
          .metadata_from_hf = diffusion_gemma_metadata,
          .renames = diffusion_gemma_renames(),
          .left_out = {"model.encoder.vision_tower.", "model.encoder.embed_vision."},
          .generate = diffusion_gemma_tensors,
          .permute_qk = false,
          .scales_rope = false};
}

}  // namespace dllm
