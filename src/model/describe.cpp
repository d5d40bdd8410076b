#include "model/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/try.h"
#include "model/describe_rope.h"
#include "model/key_reader.h"
#include "numerics/hadamard.h"

namespace dllm {
namespace {

Expected<void> read_dims(KeyReader& keys, const Architecture& architecture, ModelDesc& desc) {
  DLLM_TRY(desc.width, keys.dim("embedding_length"));
  DLLM_TRY(desc.layers, keys.dim("block_count"));
  DLLM_TRY(desc.heads, keys.dim("attention.head_count"));
  desc.kv_heads = desc.heads;
  if (!architecture.read_layers) {
    DLLM_TRY(desc.kv_heads, keys.dim("attention.head_count_kv", desc.heads));
  }
  // Files of models without a dense layer may omit it.
  std::optional<std::int64_t> ffn_width;
  if (architecture.experts) {
    DLLM_TRY(ffn_width, keys.integer("expert_feed_forward_length"));
  }
  DLLM_TRY(desc.ffn_width, keys.dim("feed_forward_length", ffn_width));
  DLLM_TRY(desc.context_length, keys.dim("context_length", desc.context_length));
  const bool divides = desc.width % desc.heads == 0;
  DLLM_TRY(desc.head_dim,
           keys.dim("attention.key_length", divides ? std::optional(desc.width / desc.heads) : std::nullopt));
  DLLM_TRY(const std::int64_t value_length, keys.dim("attention.value_length", desc.head_dim));
  if (value_length != desc.head_dim)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("value heads of {} differ from key heads of {}", value_length, desc.head_dim),
                 keys.key("attention.value_length"), ""};
  if (desc.heads % desc.kv_heads != 0)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} heads are not a multiple of {} kv heads", desc.heads, desc.kv_heads),
                 keys.key("attention.head_count_kv"), ""};
  return {};
}

Expected<void> check_experts(const KeyReader& keys, const ExpertsDesc& e, std::int64_t layers) {
  const auto wrong = [&](std::string what, std::string_view tail) {
    return Error{ErrorCode::kInvalidFile, std::move(what), keys.key(tail), ""};
  };
  if (!std::isfinite(e.scale)) return wrong("the scale is not a number", "expert_weights_scale");
  if (e.used > e.count) return wrong(fmt::format("{} of {} experts are used", e.used, e.count), "expert_used_count");
  if (e.leading_dense < 0 || e.leading_dense > layers)
    return wrong(fmt::format("{} of {} layers are dense", e.leading_dense, layers), "leading_dense_block_count");
  if (e.capacity != 0 && (e.capacity < e.used || e.capacity > e.count))
    return wrong(fmt::format("a pool of {} from {} experts for {} per row", e.capacity, e.count, e.used),
                 "expert_capacity");
  if (e.groups <= 1) return {};
  if (e.count % e.groups != 0 || e.groups_used < 1 || e.groups_used > e.groups ||
      e.count / e.groups * e.groups_used < e.used)
    return wrong(
        fmt::format("{} of {} groups of {} experts do not give {} per row", e.groups_used, e.groups, e.count, e.used),
        "expert_group_count");
  return {};
}

Expected<void> read_gate(KeyReader& keys, ExpertsDesc& e) {
  DLLM_TRY(const auto function, keys.integer("expert_gating_func"));
  if (function && *function != 1 && *function != 2)
    return Error{ErrorCode::kUnsupported, fmt::format("gating function {} is not supported", *function),
                 keys.key("expert_gating_func"), "1 (softmax) and 2 (sigmoid) are"};
  if (function) e.score = *function == 1 ? GateScore::kSoftmax : GateScore::kSigmoid;
  DLLM_TRY(const auto norm, keys.boolean("expert_weights_norm"));
  e.normalize = norm.value_or(e.normalize);
  DLLM_TRY(const auto scale, keys.number("expert_weights_scale"));
  if (scale) e.scale = *scale == 0 ? 1.f : static_cast<float>(*scale);  // llama.cpp writes 0 for none
  DLLM_TRY(const auto capacity, keys.integer("expert_capacity"));
  e.capacity = capacity.value_or(0);
  if (e.capacity != 0) e.groups = e.groups_used = 0;
  DLLM_TRY(const auto groups, keys.integer("expert_group_count"));
  DLLM_TRY(const auto groups_used, keys.integer("expert_group_used_count"));
  e.groups = groups.value_or(e.groups);
  e.groups_used = groups_used.value_or(e.groups_used);
  if (e.capacity == 0 || e.groups <= 1) return {};
  return Error{ErrorCode::kUnsupported, "experts are limited by groups and by blocks", keys.key("expert_capacity"),
               "no published model does both"};
}

Expected<void> read_experts(KeyReader& keys, ModelDesc& desc) {
  ExpertsDesc& e = desc.experts;
  DLLM_TRY(e.count, keys.dim("expert_count"));
  DLLM_TRY(e.used, keys.dim("expert_used_count"));
  // llama.cpp's rule for files without the key.
  const std::int64_t share = desc.ffn_width / e.used;
  DLLM_TRY(e.width, keys.dim("expert_feed_forward_length", share > 0 ? std::optional(share) : std::nullopt));
  DLLM_TRY(const auto shared, keys.integer("expert_shared_count"));
  DLLM_TRY(const auto shared_width, keys.integer("expert_shared_feed_forward_length"));
  if (shared && *shared > 0) e.shared_width = shared_width.value_or(*shared * e.width);
  if (e.shared_width < 0 || e.shared_width > kMaxModelDim)
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid size", e.shared_width),
                 keys.key("expert_shared_feed_forward_length"), ""};
  DLLM_TRY(const auto dense, keys.integer("leading_dense_block_count"));
  e.leading_dense = dense.value_or(0);
  DLLM_CHECK_OK(read_gate(keys, e));
  return check_experts(keys, e, desc.layers);
}

/// Features of other networks: if a key enables one, a forward pass without it would be silently wrong.
Expected<void> refuse_foreign_features(KeyReader& keys, bool experts) {
  if (!experts) {
    DLLM_TRY(const auto count, keys.integer("expert_count"));
    if (count && *count != 0)
      return Error{ErrorCode::kUnsupported,
                   fmt::format("expert_count = {} is not supported by this architecture", *count),
                   keys.key("expert_count"), ""};
  }
  for (std::string_view tail : {"attention.sliding_window", "attention.max_alibi_bias", "logit_scale", "residual_scale",
                                "embedding_scale", "attention.scale", "attn_logit_softcapping",
                                "final_logit_softcapping", "attention.clamp_kqv", "nextn_predict_layers"}) {
    if (keys.was_read(tail)) continue;  // the architecture implements it
    DLLM_TRY(const auto value, keys.number(tail));
    if (value && *value != 0)
      return Error{ErrorCode::kUnsupported, fmt::format("{} = {} is not supported by this architecture", tail, *value),
                   keys.key(tail), ""};
  }
  return {};
}

Expected<void> read_attention(KeyReader& keys, ModelDesc& desc) {
  DLLM_TRY(const auto eps, keys.number("attention.layer_norm_rms_epsilon"));
  if (eps) desc.norm_eps = static_cast<float>(*eps);
  if (!(desc.norm_eps > 0 && desc.norm_eps < 1))
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid epsilon", desc.norm_eps),
                 keys.key("attention.layer_norm_rms_epsilon"), ""};
  DLLM_TRY(const auto causal, keys.boolean("attention.causal"));
  if (causal && *causal) desc.causal_block = 1;
  // "Not causal" does not contradict a model that is causal between blocks but not within them.
  if (causal && !*causal && desc.causal_block == 1) desc.causal_block = 0;
  return {};
}

Expected<void> read_token(const Metadata& metadata, std::string_view name, std::string_view what, std::int64_t vocab,
                          std::optional<TokenId>& token) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  DLLM_TRY(const auto value, metadata.integer(key));
  // Some converters write 2^32-1 for "none".
  const bool given = value && *value != std::numeric_limits<std::uint32_t>::max() && *value != -1;
  if (given && (*value < 0 || *value >= vocab))
    return Error{ErrorCode::kInvalidFile, fmt::format("{} id {} is outside the vocabulary of {}", what, *value, vocab),
                 key, ""};
  if (given) token = static_cast<TokenId>(*value);
  // The default for the full-size vocabulary does not fit a small one.
  if (token && *token >= vocab) token.reset();
  return {};
}

/// A canvas is full of mask ids; if that id were a word or a stop token, no answer could contain that token.
Expected<void> check_mask(const ModelDesc& desc, const Tokenizer* tokenizer) {
  if (!desc.mask) return {};
  const auto wrong = [&](std::string_view what) {
    return Error{ErrorCode::kInvalidFile, fmt::format("the mask id {} {}", *desc.mask, what),
                 "tokenizer.ggml.mask_token_id", "set the key to the id of the model's mask token"};
  };
  if (std::find(desc.stop_ids.begin(), desc.stop_ids.end(), *desc.mask) != desc.stop_ids.end())
    return wrong("is also one that ends answers");
  if (desc.bos == desc.mask) return wrong("is also the one that begins texts");
  if (!tokenizer || *desc.mask >= tokenizer->vocab_size()) return {};
  const std::vector<TokenKind>& kinds = tokenizer->spec().kinds;
  const auto ordinary = [](TokenKind kind) { return kind == TokenKind::kNormal || kind == TokenKind::kByte; };
  // A vocabulary without any special token cannot distinguish them.
  if (ordinary(kinds[static_cast<std::size_t>(*desc.mask)]) && !std::all_of(kinds.begin(), kinds.end(), ordinary))
    return wrong("is an ordinary token's");
  return {};
}

Expected<void> read_tokens(const Architecture& architecture, const Metadata& metadata, const Tokenizer* tokenizer,
                           ModelDesc& desc) {
  DLLM_CHECK_OK(read_token(metadata, "bos", "bos", desc.vocab, desc.bos));
  DLLM_CHECK_OK(read_token(metadata, "eos", "eos", desc.vocab, desc.eos));
  DLLM_CHECK_OK(read_token(metadata, "padding", "padding", desc.vocab, desc.pad));
  DLLM_CHECK_OK(read_token(metadata, "mask", "mask", desc.vocab, desc.mask));
  DLLM_CHECK_OK(read_token(metadata, "delete", "delete", desc.vocab, desc.delete_token));
  DLLM_CHECK_OK(read_token(metadata, "insert", "insert", desc.vocab, desc.insert_token));
  for (std::string_view text : architecture.refused_texts)
    if (tokenizer && tokenizer->find(text))
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the model grows and shrinks its canvas with tokens such as '{}'", text),
                   "tokenizer.ggml.tokens", "this build does not know that decoding (DreamOn)"};
  std::set<TokenId> stops;
  if (desc.eos) stops.insert(*desc.eos);
  for (std::string_view name : {"eot", "eom"}) {
    std::optional<TokenId> token;
    DLLM_CHECK_OK(read_token(metadata, name, name, desc.vocab, token));
    if (token) stops.insert(*token);
  }
  DLLM_TRY(const auto more, metadata.integers(kMoreStopsKey));
  for (const std::int64_t id : more.value_or(std::vector<std::int64_t>())) {
    if (id < 0 || id >= desc.vocab)
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is outside the vocabulary of {}", id, desc.vocab),
                   std::string(kMoreStopsKey), ""};
    stops.insert(static_cast<TokenId>(id));
  }
  if (tokenizer)
    for (std::string_view text : architecture.stop_texts)
      if (const auto id = tokenizer->find(text); id && tokenizer->is_control(*id) && *id < desc.vocab)
        stops.insert(*id);
  desc.stop_ids.assign(stops.begin(), stops.end());
  if (tokenizer)
    if (auto ids = tokenizer->encode("\n", /*parse_special=*/false); ids.size() == 1 && ids[0] < desc.vocab)
      desc.newlines = std::move(ids);
  return {};
}

constexpr std::string_view kModesKey = "diffusion.modes";

Expected<void> read_modes(const Metadata& metadata, ModelDesc& desc) {
  DLLM_TRY(const std::vector<std::string>* const names, metadata.strings(kModesKey));
  if (names == nullptr) return {};
  desc.modes.clear();
  for (const std::string& name : *names) {
    const auto known = std::ranges::find(decoding_modes(), name, &std::pair<std::string_view, DecodingMode>::first);
    if (known == decoding_modes().end())
      return Error{ErrorCode::kUnsupported, fmt::format("'{}' is no way of decoding that this build knows", name),
                   std::string(kModesKey), "known: ar, diffusion, self-speculation, slots"};
    desc.modes.push_back(known->second);
  }
  return {};
}

Expected<void> read_attention_block(const Metadata& metadata, ModelDesc& desc) {
  DLLM_TRY(const auto seen, metadata.integer(kAttentionBlockKey));
  if (!seen) return {};
  const auto wrong = [](std::string what) {
    return Error{ErrorCode::kInvalidFile, std::move(what), std::string(kAttentionBlockKey),
                 "convert the checkpoint again, without --block-length: decoding keeps to the blocks of training"};
  };
  if (*seen < 0 || *seen > kMaxModelDim) return wrong(fmt::format("{} is not a valid block of attention", *seen));
  desc.causal_block = static_cast<std::int32_t>(*seen);
  desc.block_origin = *seen > 0 ? BlockOrigin::kAbsolute : BlockOrigin::kPromptEnd;
  if (*seen <= 1) return {};
  DLLM_TRY(const auto length, metadata.integer("diffusion.block_length"));
  if (length && *length != *seen)
    return wrong(fmt::format("attention has blocks of {}, and diffusion.block_length is {}", *seen, *length));
  desc.block_length = desc.causal_block;
  return {};
}

Expected<void> read_diffusion(const Metadata& metadata, ModelDesc& desc) {
  DLLM_TRY(const auto soft, metadata.boolean(kSoftTokensKey));
  desc.soft_tokens = soft.value_or(false);
  DLLM_TRY(const auto shift, metadata.boolean("diffusion.shift_logits"));
  if (shift) desc.logit_shift = *shift ? 1 : 0;
  DLLM_CHECK_OK(read_attention_block(metadata, desc));
  DLLM_TRY(const auto block, metadata.integer("diffusion.block_length"));
  if (block) {
    if (*block < 1 || *block > kMaxModelDim)
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid block length", *block),
                   "diffusion.block_length", ""};
    desc.block_length = static_cast<std::int32_t>(*block);
    if (desc.causal_block > 1) desc.causal_block = desc.block_length;  // same grid
  }
  DLLM_TRY(const std::int32_t checked, canvas_length(metadata));
  static_cast<void>(checked);
  return read_modes(metadata, desc);
}

Expected<void> read_rotation(const Metadata& metadata, ModelDesc& desc) {
  for (const OnlineRotationKey& one : online_rotation_keys(desc)) {
    DLLM_TRY(const auto order, metadata.integer(one.key));
    if (!order || *order == 0) continue;
    const auto wrong = [&](ErrorCode code, std::string what) {
      return Error{code, std::move(what), std::string(one.key), ""};
    };
    if (*order < 2 || *order > kMaxModelDim || one.width < 1 || one.width % *order != 0)
      return wrong(ErrorCode::kInvalidFile, fmt::format("{} is no divisor of {} columns", *order, one.width));
    if (auto matrix = Hadamard::online(*order); !matrix)
      return wrong(ErrorCode::kUnsupported, std::move(matrix).error().what);
    if (desc.canvas.length > 0) return wrong(ErrorCode::kUnsupported, "models that refine canvases cannot be rotated");
    desc.online.*one.order = *order;
  }
  return {};
}

/// Checks that need all keys.
Expected<void> check_whole(const Architecture& architecture, const Metadata& metadata, const KeyReader& keys,
                           const ModelDesc& desc) {
  if (desc.experts.capacity > 0 && desc.causal_block < 2)
    return Error{ErrorCode::kUnsupported, "experts are chosen by blocks, but attention has none",
                 keys.key("expert_capacity"), ""};
  if (!architecture.scales_rope && (desc.rope_scale != 1.f || desc.rope_yarn.factor != 1.f))
    return Error{ErrorCode::kUnsupported, "positions are scaled, which this architecture does not support",
                 keys.key("rope.scaling.type"), ""};
  const std::int32_t shift = desc.introspective ? 1 : 0;  // masks of these predict like all rows
  const std::int32_t block = desc.introspective || desc.slot_length > 0 ? 1 : 0;
  if (desc.has_mode(DecodingMode::kSlots) && (desc.slot_length < 1 || desc.modes.size() > 1))
    return Error{ErrorCode::kUnsupported, "only a model with slots decodes by slots, and in no other way",
                 std::string(kModesKey), "leave the key out"};
  if (!desc.modes.empty() &&
      (!desc.mask || desc.causal_block != block || desc.logit_shift != shift || desc.canvas.length > 0))
    return Error{ErrorCode::kUnsupported, "a model of several modes needs a mask token, and predicts masks in place",
                 std::string(kModesKey), "leave the key out if the model has one way of decoding"};
  if (architecture.names_mask && !metadata.find("tokenizer.ggml.mask_token_id"))
    return Error{ErrorCode::kUnsupported,
                 fmt::format("a '{}' without a mask token is an autoregressive model, which this build does not run",
                             architecture.name),
                 "tokenizer.ggml.mask_token_id", "if it is a LLaDA2, set the key when converting"};
  return {};
}

}  // namespace

std::span<const std::pair<std::string_view, DecodingMode>> decoding_modes() {
  static constexpr std::pair<std::string_view, DecodingMode> kModes[] = {
      {"ar", DecodingMode::kAutoregressive},
      {"diffusion", DecodingMode::kDiffusion},
      {"self-speculation", DecodingMode::kSelfSpeculation},
      {"slots", DecodingMode::kSlots}};
  return kModes;
}

std::vector<OnlineRotationKey> online_rotation_keys(const ModelDesc& desc) {
  const ExpertsDesc& e = desc.experts;
  const bool dense = e.count == 0 || e.leading_dense > 0;
  return {{"dllm.rotation.query_key", desc.head_dim, &OnlineRotation::query_key},
          {"dllm.rotation.ffn_down", dense ? desc.ffn_width : 0, &OnlineRotation::down},
          {"dllm.rotation.ffn_down_shexp", e.count > 0 ? e.shared_width : 0, &OnlineRotation::down_shared},
          {"dllm.rotation.ffn_down_exps", e.count > 0 ? e.width : 0, &OnlineRotation::down_experts}};
}

Expected<std::int32_t> canvas_length(const Metadata& metadata) {
  DLLM_TRY(const auto length, metadata.integer("dllm.canvas_length"));
  if (!length) return 0;
  if (*length < 1 || *length > kMaxModelDim)
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid canvas length", *length), "dllm.canvas_length",
                 ""};
  return static_cast<std::int32_t>(*length);
}

Expected<ModelDesc> describe(const Architecture& architecture, const Metadata& metadata, const TensorFacts& facts,
                             const Tokenizer* tokenizer, const Log& log) {
  ModelDesc desc;
  architecture.set_defaults(desc);
  desc.architecture = architecture.name;
  DLLM_TRY(const auto name, metadata.string("general.name"));
  desc.name = name.value_or("");
  desc.tied_embeddings = !facts.has_output;
  KeyReader keys(architecture, metadata);
  DLLM_CHECK_OK(read_dims(keys, architecture, desc));
  if (desc.layers > facts.tensors)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} layers need more than {} tensors", desc.layers, facts.tensors),
                 keys.key("block_count"), ""};
  DLLM_TRY(desc.vocab, keys.dim("vocab_size", facts.embedding_rows));
  if (desc.vocab != facts.embedding_rows)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("vocab_size is {}, but token_embd.weight has {} rows", desc.vocab, facts.embedding_rows),
                 keys.key("vocab_size"), ""};
  if (tokenizer && tokenizer->vocab_size() > desc.vocab)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} tokens, but token_embd.weight has {} rows", tokenizer->vocab_size(), desc.vocab),
                 "tokenizer.ggml.tokens", ""};
  DLLM_CHECK_OK(describe_rope(keys, desc));
  DLLM_CHECK_OK(read_attention(keys, desc));
  if (architecture.experts) DLLM_CHECK_OK(read_experts(keys, desc));
  if (architecture.read_layers) DLLM_CHECK_OK(architecture.read_layers(keys, desc));
  DLLM_CHECK_OK(refuse_foreign_features(keys, architecture.experts));
  DLLM_CHECK_OK(read_diffusion(metadata, desc));
  DLLM_CHECK_OK(read_rotation(metadata, desc));
  DLLM_CHECK_OK(read_tokens(architecture, metadata, tokenizer, desc));
  if (desc.canvas.length > 0) desc.mask.reset();  // files have one; the model never reads it
  DLLM_CHECK_OK(check_mask(desc, tokenizer));
  DLLM_CHECK_OK(check_whole(architecture, metadata, keys, desc));
  keys.report_unread(log);
  return desc;
}

}  // namespace dllm
