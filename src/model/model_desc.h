#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "graph/graph.h"

namespace dllm {

/// Where the grid of blocks begins: at the end of the prompt (LLaDA) or at position 0 (LLaDA2, SDAR).
enum class BlockOrigin { kPromptEnd, kAbsolute };

/// Feed-forward layers made of experts (LLaDA-MoE, arXiv 2509.24389; LLaDA2.0, arXiv 2512.15745). See op::Route for the
/// terms.
struct ExpertsDesc {
  std::int64_t count = 0;          ///< experts of a layer; 0: every layer is dense
  std::int64_t used = 0;           ///< of them per row
  std::int64_t width = 0;          ///< hidden width of one expert
  std::int64_t shared_width = 0;   ///< of the expert that every row also passes through; 0: none
  std::int64_t leading_dense = 0;  ///< first layers without experts
  GateScore score = GateScore::kSoftmax;
  std::int64_t groups = 0, groups_used = 0;  ///< 0: no group limit
  std::int64_t capacity = 0;                 ///< experts that a block of positions may use; 0: no block routing
  bool normalize = false;
  float scale = 1.f;
};

/// Layers that see a window of the context, next to layers that see all of it; they have their own heads (Gemma).
struct SlidingDesc {
  std::int32_t window = 0;   ///< see op::Attention; 0: every layer sees everything
  std::vector<bool> layers;  ///< by layer: whether it has the window
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rope_dims = 0;
  float rope_theta = 10000.f;

  bool has(std::int64_t layer) const { return window > 0 && layers[static_cast<std::size_t>(layer)]; }
};

/// Rotations that the graph computes in every step, because they cannot be folded into weights (QuaRot, arXiv
/// 2404.00456): orders of the Hadamard matrix of op::Hadamard; 0: none. The matrix that reads a rotated activation
/// contains the inverse and has kRotatedSuffix in its name, so that programs that do not compute the rotation miss it.
struct OnlineRotation {
  std::int64_t query_key = 0;     ///< of slices of each head of queries and keys, after RoPE
  std::int64_t down = 0;          ///< of ffn_down's input
  std::int64_t down_shared = 0;   ///< ffn_down_shexp
  std::int64_t down_experts = 0;  ///< ffn_down_exps

  bool any() const { return query_key != 0 || down != 0 || down_shared != 0 || down_experts != 0; }
};
inline constexpr std::string_view kRotatedSuffix = "_hadamard";

/// Recommendations of models that refine whole canvases of random tokens (DiffusionGemma) instead of filling masks.
struct CanvasDesc {
  std::int32_t length = 0;          ///< positions of a canvas; 0: the model fills masks, or is autoregressive
  std::int32_t max_steps = 48;      ///< passes over one canvas
  double t_min = 0.4, t_max = 0.8;  ///< temperature of the last pass, and that before the first
  double entropy_bound = 0.1;       ///< nats, see CanvasSampler
  std::int32_t stability = 1;       ///< passes with the same arg-max that end a canvas
  double confidence = 0.005;        ///< if the mean entropy is below this (nats)
  // Of a request, not of a model.
  std::int32_t first = 0;             ///< positions of the first canvas, where canvases grow; 0: all have `length`
  std::optional<double> threshold{};  ///< tokens as sure as this are kept, instead of those of low entropy
};

/// What a model trained for several ways of decoding does with its one set of weights (Nemotron-Labs-Diffusion): one
/// token after the other under a causal mask; blocks of masks that see themselves in both directions; or drafts of the
/// second kind that the first verifies. Models with slots (ModelDesc::slot_length) have one way, the last.
enum class DecodingMode { kAutoregressive, kDiffusion, kSelfSpeculation, kSlots };

/// A small diffusion model that drafts for an autoregressive one (DFlash, DFlash2, DSpark): it reads hidden states of
/// its target for the positions that are decided, and a block of one known token and masks, and predicts the masks.
struct DrafterDesc {
  std::vector<std::int32_t> target_layers;  ///< whose outputs it reads, in order of its input; empty: not a drafter
  std::int64_t target_layer_count = 0;      ///< layers of its target; 0: the file does not say
  std::int32_t block = 16;                  ///< positions of a block, the known first one included
  bool from_anchor = false;                 ///< row i of a block predicts the token after it (DSpark), not its own
  float embedding_scale = 1.f, logit_scale = 1.f;
  std::int64_t vocab = 0;                            ///< tokens of its own head, which `d2t` names; 0: the target's
  std::int32_t conv_taps = 0, conv_group = 0;        ///< of op::BlockConv; 0: none (DFlash2)
  std::int64_t selector_rank = 0, selector_top = 0;  ///< candidates per position and rank of their pairs (DFlash2)
  std::int64_t markov_rank = 0;                      ///< of a term by the token in front; 0: none (DSpark)
  bool confidence_head = false;                      ///< sigmoid of a product says how sure a draft is (DSpark)
  /// Whether rows of a block see nothing behind them; absent: in layers with a window (ModelDesc::sliding).
  std::optional<bool> causal{};
};

/// What a model is told about the drafter that drafts for it.
struct DraftedDesc {
  Position block = 0;  ///< widest round, the known first token included; 0: the model drafts for itself, or nobody does
  double cost = 0;     ///< of a pass of the drafter, in passes of the model of `block` rows
};

/// Everything that defines a model's forward pass and the facts its samplers need. Read from the
/// file's metadata; keys a file lacks come from the architecture's defaults.
struct ModelDesc {
  std::string architecture;  ///< GGUF `general.architecture`
  std::string name;          ///< GGUF `general.name`, for people

  std::int64_t vocab = 0;  ///< rows of the embedding (may exceed the tokenizer's tokens)
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_width = 0;
  std::int64_t context_length = 0;
  float norm_eps = 1e-5f;
  bool qkv_bias = false;         ///< q, k, v carry biases (Dream, Qwen2)
  bool qk_norm = false;          ///< q and k of each head are normalized before RoPE (Qwen3, LLaDA-MoE, LLaDA2)
  bool plain_ffn = false;        ///< down(gelu(up x)) with biases, in place of a gated unit (MDLM)
  bool tied_embeddings = false;  ///< no output.weight: the embedding is the head

  ExpertsDesc experts;
  SlidingDesc sliding;  ///< head_dim, kv_heads and rope_* below are those of the other layers
  CanvasDesc canvas;
  OnlineRotation online;
  DrafterDesc drafter;
  DraftedDesc drafted;
  std::vector<std::int32_t> hidden_layers;  ///< whose outputs the graph hands out (op::HiddenOut), ascending
  float logit_softcap = 0.f;                ///< 0: none

  RopeLayout rope_layout = RopeLayout::kHalfSplit;
  float rope_theta = 10000.f;  ///< llama.cpp's base for files of any architecture without `rope.freq_base`
  float rope_scale = 1.f;      ///< positions are multiplied by it (1 / linear factor)
  YarnScaling rope_yarn;
  PositionScaling query_growth;  ///< of queries, after RoPE
  std::int64_t rope_dims = 0;

  /// 0: full bidirectional attention; B: block-causal, query i sees key j iff j/B <= i/B; 1 is the causal mask.
  std::int32_t causal_block = 0;
  /// 1 if row i-1 predicts the token at i (Dream, autoregressive models), else 0.
  std::int32_t logit_shift = 0;
  /// Attention is causal in an order in which all decided tokens come before all masks, each at its own position: masks
  /// see every decided token, also one behind them (WeDLM, arXiv 2512.22737).
  bool decided_first = false;
  /// Drafts are read and made by one causal pass: masks behind the tokens that it verifies predict the next ones, like
  /// these shifted by one (I-DLM, arXiv 2604.11035). With modes `ar` and `self-speculation`.
  bool introspective = false;
  /// Runs of this many positions are chosen in any order, and each is filled from left to right; attention is causal in
  /// the order in which they were filled (ReFusion, arXiv 2512.13586). 0: there are none.
  std::int32_t slot_length = 0;
  BlockOrigin block_origin = BlockOrigin::kPromptEnd;
  std::int32_t block_length = 32;  ///< recommended decoding block
  bool soft_tokens = false;        ///< trained to read committed tokens as mixtures with the mask (DMax)

  std::optional<TokenId> mask;  ///< absent for autoregressive models
  std::optional<TokenId> bos, eos, pad;
  /// Predictions that edit the length of a block instead of naming a token (LLaDA2.2).
  std::optional<TokenId> delete_token, insert_token;
  std::vector<TokenId> stop_ids;  ///< any of them ends the answer
  std::vector<TokenId> newlines;  ///< tokens that are a line break

  /// In which ways one set of weights was trained to decode; empty: in one way only, which the fields above describe.
  /// With modes, those describe the prediction of masks: attention is causal over what is finished.
  std::vector<DecodingMode> modes;

  bool has_mode(DecodingMode mode) const { return std::find(modes.begin(), modes.end(), mode) != modes.end(); }
  bool autoregressive() const { return causal_block == 1 && !mask.has_value(); }
};

}  // namespace dllm
