// Drafters for autoregressive models (DFlash, DFlash2, DSpark): Qwen3's layers over a block of one known token and
// masks, which see each other in both directions and, through K and V alone, hidden states of the target for every
// position in front of the block. Definition: z-lab's PyPI package dflash 0.1.0 (model.py); keys and names of tensors
// are llama.cpp's.
#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "base/try.h"
#include "graph/builder.h"
#include "model/dflash.h"
#include "model/key_reader.h"
#include "model/rope_op.h"

namespace dllm {
namespace {

/// Both graphs declare the same weights in the same order, because they share what is bound to them.
class DrafterBuilder {
 public:
  DrafterBuilder(const ModelDesc& desc, StepShape shape) : desc_(desc), d_(desc.drafter), b_(shape) {
    table_ = b_.weight("token_embd.weight", {desc_.width, desc_.vocab});
    fc_ = b_.weight("fc.weight", {static_cast<std::int64_t>(d_.target_layers.size()) * desc_.width, desc_.width});
    hidden_norm_ = b_.weight("enc.output_norm.weight", {desc_.width});
    for (std::int64_t layer = 0; layer < desc_.layers; ++layer) declare_layer(layer);
    output_norm_ = b_.weight("output_norm.weight", {desc_.width});
    head_ = desc_.tied_embeddings ? table_ : b_.weight("output.weight", {desc_.width, draft_vocab()});
    declare_choice();
  }

  /// K and V of every layer from the target's hidden states: c = norm(fc(states)) is the same for all layers.
  Graph context() {
    const ValueId states =
        b_.hidden_in(static_cast<std::int64_t>(d_.target_layers.size()) * desc_.width, "target_hidden");
    const ValueId fused = b_.linear(states, fc_, "fc");
    const ValueId c = b_.rms_norm(fused, hidden_norm_, desc_.norm_eps, "enc_output_norm");
    for (std::int64_t layer = 0; layer < desc_.layers; ++layer) store(c, layer);
    return b_.take();
  }

  Graph block() {
    ValueId x = b_.embed(table_, "embd", d_.embedding_scale);
    for (std::int64_t layer = 0; layer < desc_.layers; ++layer) x = feed_forward(attention(x, layer), layer);
    x = b_.gather_scored(x, "scored");
    x = b_.rms_norm(x, output_norm_, desc_.norm_eps, "output_norm");
    if (d_.selector_rank > 0 || d_.confidence_head) b_.hidden_out(x);
    if (d_.logit_scale != 1.f)
      x = b_.scale(x, {.x = kNoId, .factor = d_.logit_scale, .context = kNoId, .canvas = kNoId, .out = kNoId},
                   "output_scale");
    b_.score_head(x, head_, kNoId, desc_.logit_softcap);
    return b_.take();
  }

 private:
  struct Conv {
    WeightId base = kNoId, projection = kNoId;
  };
  struct Layer {
    WeightId attn_norm, q, k, v, q_norm, k_norm, output, ffn_norm, gate, up, down;
    Conv attn_conv, ffn_conv;
  };

  static std::string name(std::int64_t layer, std::string_view part) { return fmt::format("blk.{}.{}", layer, part); }
  std::int64_t draft_vocab() const { return d_.vocab > 0 ? d_.vocab : desc_.vocab; }

  WeightId matrix(std::int64_t layer, std::string_view part, std::int64_t in, std::int64_t out) {
    return b_.weight(name(layer, part) + ".weight", {in, out});
  }
  WeightId vector(std::int64_t layer, std::string_view part, std::int64_t size) {
    return b_.weight(name(layer, part) + ".weight", {size});
  }
  Conv conv(std::int64_t layer, std::string_view part) {
    if (d_.conv_taps == 0) return {};
    const std::int64_t groups = desc_.width / d_.conv_group;
    const WeightId base = b_.weight(name(layer, part) + "_base", {desc_.width, d_.conv_taps, 2});
    return {base, b_.weight(name(layer, part) + "_proj.weight", {desc_.width, 2 * d_.conv_taps * groups})};
  }

  void declare_layer(std::int64_t l) {
    const std::int64_t q = desc_.heads * desc_.head_dim, kv = desc_.kv_heads * desc_.head_dim;
    Layer& w = layers_.emplace_back();
    w.attn_norm = vector(l, "attn_norm", desc_.width);
    w.q = matrix(l, "attn_q", desc_.width, q);
    w.k = matrix(l, "attn_k", desc_.width, kv);
    w.v = matrix(l, "attn_v", desc_.width, kv);
    w.q_norm = vector(l, "attn_q_norm", desc_.head_dim);
    w.k_norm = vector(l, "attn_k_norm", desc_.head_dim);
    w.output = matrix(l, "attn_output", q, desc_.width);
    w.attn_conv = conv(l, "attn_conv");
    w.ffn_norm = vector(l, "ffn_norm", desc_.width);
    w.gate = matrix(l, "ffn_gate", desc_.width, desc_.ffn_width);
    w.up = matrix(l, "ffn_up", desc_.width, desc_.ffn_width);
    w.down = matrix(l, "ffn_down", desc_.ffn_width, desc_.width);
    w.ffn_conv = conv(l, "ffn_conv");
  }

  /// What chooses tokens from the logits, outside the graph (engine/draft_choice.h).
  void declare_choice() {
    if (d_.selector_rank > 0) {
      b_.weight("selector_predecessor.weight", {d_.selector_rank, desc_.vocab});
      b_.weight("selector_successor.weight", {d_.selector_rank, desc_.vocab});
      b_.weight("selector_hidden.weight", {desc_.width, d_.selector_rank});
    }
    if (d_.markov_rank > 0) {
      b_.weight("markov_w1.weight", {d_.markov_rank, desc_.vocab});
      b_.weight("markov_w2.weight", {d_.markov_rank, draft_vocab()});
    }
    if (d_.confidence_head) {
      b_.weight("conf_proj.weight", {desc_.width + d_.markov_rank, 1});
      b_.optional_weight("conf_proj.bias", {1});
    }
    if (d_.vocab > 0) b_.weight("d2t", {d_.vocab});
  }

  ValueId rope(ValueId x, std::int64_t heads, std::string rope_name) {
    return b_.rope(x, rope_of(desc_, heads), std::move(rope_name));
  }

  ValueId head_norm(ValueId x, WeightId gain, std::int64_t heads, std::string norm_name) {
    return b_.rms_norm(x, gain, desc_.norm_eps, std::move(norm_name), static_cast<std::int32_t>(heads));
  }

  void store(ValueId x, std::int64_t l) {
    const Layer& w = layers_[static_cast<std::size_t>(l)];
    const ValueId k = b_.linear(x, w.k, name(l, "attn_k")), v = b_.linear(x, w.v, name(l, "attn_v"));
    store_rotated(k, v, l);
  }

  void store_rotated(ValueId k, ValueId v, std::int64_t l) {
    const ValueId normed =
        head_norm(k, layers_[static_cast<std::size_t>(l)].k_norm, desc_.kv_heads, name(l, "attn_k_norm"));
    b_.store_kv(rope(normed, desc_.kv_heads, name(l, "attn_k_rope")), v, static_cast<std::int32_t>(l));
  }

  /// Of one of the two sides of a layer's part; x itself without convolutions.
  ValueId convolve(ValueId x, ValueId dynamic, const Conv& conv, std::int32_t side, std::string conv_name) {
    if (conv.base == kNoId) return x;
    return b_.block_conv(x, dynamic,
                         {.x = kNoId,
                          .dynamic = kNoId,
                          .base = conv.base,
                          .taps = d_.conv_taps,
                          .group = d_.conv_group,
                          .side = side,
                          .out = kNoId},
                         std::move(conv_name));
  }
  ValueId kernels(ValueId x, const Conv& conv, std::string kernel_name) {
    return conv.base == kNoId ? kNoId : b_.linear(x, conv.projection, std::move(kernel_name));
  }

  op::RowView view(std::int64_t l) const {
    const bool slides = desc_.sliding.has(l);
    if (d_.causal.value_or(slides)) return op::RowView::kCausal;
    return slides ? op::RowView::kApart : op::RowView::kPlan;
  }

  ValueId attention(ValueId x, std::int64_t l) {
    const Layer& w = layers_[static_cast<std::size_t>(l)];
    const ValueId normed = b_.rms_norm(x, w.attn_norm, desc_.norm_eps, name(l, "attn_norm"));
    const ValueId dynamic = kernels(normed, w.attn_conv, name(l, "attn_conv"));
    const ValueId in = convolve(normed, dynamic, w.attn_conv, 0, name(l, "attn_conv_in"));
    const ValueId q = b_.linear(in, w.q, name(l, "attn_q")), k = b_.linear(in, w.k, name(l, "attn_k")),
                  v = b_.linear(in, w.v, name(l, "attn_v"));
    const ValueId q_rot =
        rope(head_norm(q, w.q_norm, desc_.heads, name(l, "attn_q_norm")), desc_.heads, name(l, "attn_q_rope"));
    store_rotated(k, v, l);
    const ValueId mixed =
        b_.attention(q_rot,
                     {.q = kNoId,
                      .layer = static_cast<std::int32_t>(l),
                      .heads = static_cast<std::int32_t>(desc_.heads),
                      .kv_heads = static_cast<std::int32_t>(desc_.kv_heads),
                      .head_dim = static_cast<std::int32_t>(desc_.head_dim),
                      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(desc_.head_dim))),
                      .out = kNoId,
                      .window = desc_.sliding.has(l) ? desc_.sliding.window : 0,
                      .view = view(l)},
                     name(l, "attn_mix"));
    const ValueId out = b_.linear(mixed, w.output, name(l, "attn_output"));
    return b_.add(x, convolve(out, dynamic, w.attn_conv, 1, name(l, "attn_conv_out")), name(l, "attn_residual"));
  }

  ValueId feed_forward(ValueId x, std::int64_t l) {
    const Layer& w = layers_[static_cast<std::size_t>(l)];
    const ValueId normed = b_.rms_norm(x, w.ffn_norm, desc_.norm_eps, name(l, "ffn_norm"));
    const ValueId dynamic = kernels(normed, w.ffn_conv, name(l, "ffn_conv"));
    const ValueId in = convolve(normed, dynamic, w.ffn_conv, 0, name(l, "ffn_conv_in"));
    const ValueId gate = b_.linear(in, w.gate, name(l, "ffn_gate")), up = b_.linear(in, w.up, name(l, "ffn_up"));
    const ValueId out = b_.linear(b_.glu(gate, up, name(l, "ffn_act")), w.down, name(l, "ffn_down"));
    return b_.add(x, convolve(out, dynamic, w.ffn_conv, 1, name(l, "ffn_conv_out")), name(l, "ffn_residual"));
  }

  const ModelDesc& desc_;
  const DrafterDesc& d_;
  GraphBuilder b_;
  WeightId table_, fc_, hidden_norm_, output_norm_, head_;
  std::vector<Layer> layers_;
};

void set_drafter_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-6f;
  desc.context_length = 32768;
  desc.qk_norm = true;
}

constexpr std::int64_t kMostBlock = 512, kMostTaps = 64;

/// Files count the layers from the one whose input is meant: id + 1.
Expected<void> read_target(KeyReader& keys, DrafterDesc& d) {
  DLLM_TRY(const auto layers, keys.integers("target_layers"));
  if (!layers || layers->empty())
    return Error{ErrorCode::kInvalidFile, "the key is missing", keys.key("target_layers"),
                 "it names the layers of the target whose hidden states the drafter reads"};
  for (const std::int64_t one : *layers) {
    if (one < 1 || one > kMaxModelDim || (!d.target_layers.empty() && one - 1 <= d.target_layers.back()))
      return Error{ErrorCode::kUnsupported, fmt::format("{} is no layer, or not after the one in front of it", one),
                   keys.key("target_layers"), "ascending numbers from 1 are supported"};
    d.target_layers.push_back(static_cast<std::int32_t>(one - 1));
  }
  DLLM_TRY(const auto count, keys.integer("target_block_count"));
  d.target_layer_count = count.value_or(0);
  return {};
}

Expected<void> read_sizes(KeyReader& keys, const ModelDesc& desc, DrafterDesc& d) {
  const auto size = [&](std::string_view tail, std::int64_t most, std::int64_t otherwise) -> Expected<std::int64_t> {
    DLLM_TRY(const auto value, keys.integer(tail));
    if (!value) return otherwise;
    if (*value >= 0 && *value <= most) return *value;
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a size up to {}", *value, most), keys.key(tail), ""};
  };
  DLLM_TRY(const std::int64_t block, size("block_size", kMostBlock, 16));
  if (block < 2) return Error{ErrorCode::kInvalidFile, "a block without masks", keys.key("block_size"), ""};
  d.block = static_cast<std::int32_t>(block);
  DLLM_TRY(const std::int64_t taps, size("conv_kernel_size", kMostTaps, 0));
  DLLM_TRY(const std::int64_t group, size("conv_group_size", kMaxModelDim, 0));
  if (taps > 0 && (group < 1 || desc.width % group != 0))
    return Error{ErrorCode::kInvalidFile, fmt::format("groups of {} do not divide {} lanes", group, desc.width),
                 keys.key("conv_group_size"), ""};
  d.conv_taps = static_cast<std::int32_t>(taps);
  d.conv_group = static_cast<std::int32_t>(group);
  DLLM_TRY(d.selector_rank, size("selector_rank", kMaxModelDim, 0));
  DLLM_TRY(d.selector_top, size("selector_top_k", kMaxModelDim, 0));
  if ((d.selector_rank > 0) != (d.selector_top > 0))
    return Error{ErrorCode::kInvalidFile, "rank and candidates of the selector contradict each other",
                 keys.key("selector_top_k"), ""};
  // Not in the files: complete_drafter() reads them off the tensors.
  DLLM_TRY(d.markov_rank, size("markov_rank", kMaxModelDim, 0));
  DLLM_TRY(d.vocab, size("draft_vocab_size", kMaxModelDim, 0));
  return {};
}

/// Which layers see a window of positions only, and which of them nothing behind a row.
Expected<void> read_masks(KeyReader& keys, ModelDesc& desc) {
  constexpr std::string_view kWindow = "attention.sliding_window", kPattern = "attention.sliding_window_pattern";
  DLLM_TRY(desc.drafter.causal, keys.boolean("attention.causal"));
  desc.causal_block = 0;  // blocks are planned whole; the graph has the masks
  DLLM_TRY(const auto window, keys.integer(kWindow));
  DLLM_TRY(const auto pattern, keys.booleans(kPattern));
  if (!window || *window == 0) return {};
  if (*window < 1 || *window > kMaxModelDim)
    return Error{ErrorCode::kInvalidFile, fmt::format("a window of {}", *window), keys.key(kWindow), ""};
  if (!pattern || pattern->size() != to_size(desc.layers))
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("the list does not say which of the {} layers have the window", desc.layers),
                 keys.key(kPattern), ""};
  desc.sliding.window = static_cast<std::int32_t>(*window);
  desc.sliding.layers = *pattern;
  // Behind a row, such a window would end within the block.
  if (desc.drafter.causal == false && *window < desc.drafter.block)
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("a window of {} in both directions is narrower than the block of {}", *window, desc.drafter.block),
        keys.key(kWindow), "wider windows are supported, and those that see nothing behind a row"};
  return {};
}

/// Parts of other programs' drafters whose keys say that a forward pass without them would be another.
Expected<void> refuse_other_parts(KeyReader& keys) {
  for (const auto& [tail, what] : {std::pair("hyper_connection_count", "hyper-connections"),
                                   std::pair("attention.value_scale", "scaled values")}) {
    DLLM_TRY(const auto value, keys.number(tail));
    if (value && *value != 0 && *value != 1)
      return Error{ErrorCode::kUnsupported, fmt::format("drafters with {} are not supported", what), keys.key(tail),
                   "those of Qwen3's layers are"};
  }
  DLLM_TRY(const auto activation, keys.string("hidden_activation"));
  if (activation && *activation != "silu")
    return Error{ErrorCode::kUnsupported,
                 fmt::format("drafters with the activation '{}' are not supported", *activation),
                 keys.key("hidden_activation"), "those with SiLU are"};
  return {};
}

Expected<void> read_drafter(KeyReader& keys, ModelDesc& desc) {
  DrafterDesc& d = desc.drafter;
  DLLM_TRY(desc.kv_heads, keys.dim("attention.head_count_kv", desc.heads));
  DLLM_CHECK_OK(read_target(keys, d));
  DLLM_CHECK_OK(read_sizes(keys, desc, d));
  DLLM_TRY(const auto confidence, keys.boolean("confidence_head"));
  d.confidence_head = confidence.value_or(false);
  DLLM_TRY(const auto anchor, keys.boolean("sample_from_anchor"));
  d.from_anchor = d.markov_rank > 0 && anchor.value_or(true);
  DLLM_TRY(const auto embedding, keys.number("embedding_scale"));
  if (embedding && *embedding != 0) d.embedding_scale = static_cast<float>(*embedding);
  DLLM_TRY(const auto logits, keys.number("logit_scale"));
  if (logits && *logits != 0) d.logit_scale = static_cast<float>(*logits);
  DLLM_TRY(const auto cap, keys.number("final_logit_softcapping"));
  desc.logit_softcap = static_cast<float>(cap.value_or(0));
  DLLM_CHECK_OK(read_masks(keys, desc));
  return refuse_other_parts(keys);
}

}  // namespace

Architecture dflash_architecture() {
  return {.name = "dflash",
          .hf_architectures = {"DFlashDraftModel", "DFlash2DraftModel", "Qwen3DSparkModel", "DSparkDraftModel",
                               "DSparkSpeculator"},
          .set_defaults = set_drafter_defaults,
          .read_layers = read_drafter,
          .stop_texts = {},
          .build = [](const ModelDesc& desc, StepShape shape) { return DrafterBuilder(desc, shape).block(); },
          .build_context = [](const ModelDesc& desc, StepShape shape) { return DrafterBuilder(desc, shape).context(); },
          .metadata_from_hf = drafter_metadata,
          .renames = drafter_renames(),
          .left_out = {"t2d", "model.t2d"},
          .token_map = "d2t",
          .permute_qk = false};
}

}  // namespace dllm
