#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "base/try.h"
#include "text/tokenizer/end_of_turn.h"
#include "text/tokenizer/presets.h"
#include "text/tokenizer/roles.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

constexpr std::string_view kPatternsKey = "dllm.tokenizer.patterns";
constexpr std::string_view kNfcKey = "dllm.tokenizer.nfc";
constexpr std::string_view kIgnoreMergesKey = "dllm.tokenizer.ignore_merges";
constexpr std::string_view kUnknownByteKey = "dllm.tokenizer.unknown_byte_id";
constexpr std::string_view kFuseUnknownKey = "dllm.tokenizer.fuse_unknown";
constexpr std::string_view kPrefixSpaceKey = "tokenizer.ggml.add_space_prefix";
constexpr std::string_view kCharacterModel = "gemma4";
constexpr std::string_view kOwnPre = "dllm";  // value of `.pre` when the patterns are those of kPatternsKey

struct SpecialId {
  std::string_view key;
  std::optional<TokenId> TokenizerSpec::* id;
};
constexpr std::array<SpecialId, 6> kSpecialIds = {{
    {"tokenizer.ggml.bos_token_id", &TokenizerSpec::bos},
    {"tokenizer.ggml.eos_token_id", &TokenizerSpec::eos},
    {"tokenizer.ggml.eot_token_id", &TokenizerSpec::eot},
    {"tokenizer.ggml.padding_token_id", &TokenizerSpec::pad},
    {"tokenizer.ggml.mask_token_id", &TokenizerSpec::mask},
    {"tokenizer.ggml.unknown_token_id", &TokenizerSpec::unk},
}};

Error invalid_gguf(std::string what, std::string hint = "") {
  return {ErrorCode::kInvalidFile, std::move(what), "GGUF tokenizer", std::move(hint)};
}

Expected<void> read_vocabulary(const Metadata& metadata, TokenizerSpec& spec) {
  DLLM_TRY(const auto* tokens, metadata.strings("tokenizer.ggml.tokens"));
  if (tokens == nullptr) return invalid_gguf("there is no 'tokenizer.ggml.tokens'");
  spec.tokens = *tokens;
  DLLM_TRY(const auto* merges, metadata.strings("tokenizer.ggml.merges"));
  if (merges != nullptr) spec.merges = *merges;
  DLLM_TRY(const auto types, metadata.integers("tokenizer.ggml.token_type"));
  if (!types) {
    spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
    return {};
  }
  for (std::size_t id = 0; id < types->size(); ++id) {
    const std::int64_t type = (*types)[id];
    if (type < 1 || type > 6) return invalid_gguf(fmt::format("token {} has the unknown type {}", id, type));
    spec.kinds.push_back(static_cast<TokenKind>(type));
  }
  return {};
}

Expected<void> read_special_ids(const Metadata& metadata, TokenizerSpec& spec) {
  for (const auto& [key, id] : kSpecialIds) {
    DLLM_TRY(const auto value, metadata.integer(key));
    // Some converters write 2^32-1 for "none".
    if (!value || *value == std::numeric_limits<std::uint32_t>::max() || *value == -1) continue;
    if (*value < 0 || *value >= static_cast<std::int64_t>(spec.tokens.size())) {
      return invalid_gguf(fmt::format("{} is {}, outside the vocabulary of {}", key, *value, spec.tokens.size()));
    }
    spec.*id = static_cast<TokenId>(*value);
  }
  if (!spec.eot) spec.eot = guess_end_of_turn(spec, /*any_kind=*/true);
  std::vector<TokenRole> roles;
  if (spec.eot) roles.push_back({"eot", *spec.eot});
  for (const auto& [key, value] : metadata.entries()) {
    constexpr std::string_view kPrefix = "tokenizer.ggml.", kSuffix = "_token_id";
    const std::string_view name(key);
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    DLLM_TRY(const auto id, metadata.integer(key));
    if (!id || *id < 0 || *id >= static_cast<std::int64_t>(spec.tokens.size())) continue;
    roles.push_back(
        {name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()), static_cast<TokenId>(*id)});
  }
  settle_roles(spec, roles);
  return {};
}

// The preset that `.pre` names. Without `.pre` llama.cpp falls back to "default"; so do we.
Expected<const TokenizerPreset*> read_preset(const Metadata& metadata) {
  DLLM_TRY(const auto pre, metadata.string("tokenizer.ggml.pre"));
  const TokenizerPreset* preset = find_preset(pre.value_or("default"));
  if (preset != nullptr) return preset;
  if (metadata.contains(kPatternsKey)) return find_preset("default");  // all its settings are overridden
  return Error{ErrorCode::kUnsupported, fmt::format("unknown pre-tokenizer '{}' in tokenizer.ggml.pre", *pre),
               "GGUF tokenizer", fmt::format("known: {}", fmt::join(Tokenizer::preset_names(), ", "))};
}

Expected<bool> flag_or(const Metadata& metadata, std::string_view key, bool otherwise) {
  DLLM_TRY(const auto value, metadata.boolean(key));
  return value.value_or(otherwise);
}

Expected<void> read_rules(const Metadata& metadata, TokenizerSpec& spec) {
  if (spec.characters) {
    DLLM_TRY(spec.add_bos, flag_or(metadata, "tokenizer.ggml.add_bos_token", spec.bos.has_value()));
    DLLM_TRY(spec.add_eos, flag_or(metadata, "tokenizer.ggml.add_eos_token", false));
    return {};
  }
  DLLM_TRY(const TokenizerPreset* preset, read_preset(metadata));
  DLLM_TRY(const auto* patterns, metadata.strings(kPatternsKey));
  spec.patterns = patterns != nullptr ? *patterns : preset->patterns;
  DLLM_TRY(spec.nfc, flag_or(metadata, kNfcKey, preset->nfc));
  DLLM_TRY(spec.ignore_merges, flag_or(metadata, kIgnoreMergesKey, preset->ignore_merges));
  DLLM_TRY(const auto unknown, metadata.integer(kUnknownByteKey));
  if (unknown && *unknown >= 0 && *unknown < static_cast<std::int64_t>(spec.tokens.size()))
    spec.unknown_byte = static_cast<TokenId>(*unknown);
  DLLM_TRY(spec.fuse_unknown, flag_or(metadata, kFuseUnknownKey, false));
  DLLM_TRY(spec.add_prefix_space, flag_or(metadata, kPrefixSpaceKey, false));
  DLLM_TRY(spec.add_bos, flag_or(metadata, "tokenizer.ggml.add_bos_token", preset->add_bos && spec.bos.has_value()));
  DLLM_TRY(spec.add_eos, flag_or(metadata, "tokenizer.ggml.add_eos_token", false));
  if (patterns == nullptr) {
    spec.pre_name = preset->name;
  } else if (const auto* same = preset_of_patterns(spec.patterns, spec.ignore_merges)) {
    spec.pre_name = same->name;
  }
  return {};
}

}  // namespace

Expected<TokenizerSpec> Tokenizer::spec_from_gguf(const Metadata& metadata) {
  DLLM_TRY(const auto model, metadata.string("tokenizer.ggml.model"));
  if (!model) return invalid_gguf("there is no 'tokenizer.ggml.model'");
  if (*model != "gpt2" && *model != kCharacterModel) {
    return Error{ErrorCode::kUnsupported, fmt::format("tokenizer model '{}'", *model), "GGUF tokenizer",
                 "BPE over bytes ('gpt2') and over characters ('gemma4') are supported"};
  }
  TokenizerSpec spec;
  DLLM_TRY(const auto pre, metadata.string("tokenizer.ggml.pre"));
  // Some files of vocabularies over characters give the model as "gpt2", and say so here.
  constexpr std::string_view kCharacterPres[] = {"gemma4", "sarvam-moe", "granite-embed-multi-311m"};
  spec.characters =
      *model == kCharacterModel || (pre && std::ranges::find(kCharacterPres, *pre) != std::ranges::end(kCharacterPres));
  DLLM_CHECK_OK(read_vocabulary(metadata, spec));
  DLLM_CHECK_OK(read_special_ids(metadata, spec));
  DLLM_CHECK_OK(read_rules(metadata, spec));
  return spec;
}

Expected<void> Tokenizer::spec_to_gguf(const TokenizerSpec& spec, Metadata& metadata) {
  const bool isolated = std::ranges::all_of(spec.rules, [](const SplitRule& rule) { return rule == SplitRule{}; });
  const bool stripping = std::ranges::any_of(spec.flags, [](const auto& f) { return f.lstrip || f.rstrip; });
  if (!isolated || stripping) {
    return Error{ErrorCode::kUnsupported,
                 isolated ? "added tokens that strip white space" : "a pre-tokenizer that does not split 'Isolated'",
                 "GGUF tokenizer", "GGUF has no key for it"};
  }
  const TokenizerPreset* preset = find_preset(spec.pre_name);
  // A name that does not match the patterns must not replace them.
  if (preset != nullptr && !has_patterns(*preset, spec.patterns)) preset = nullptr;
  metadata.set("tokenizer.ggml.model", MetaValue::string(spec.characters ? std::string(kCharacterModel) : "gpt2"));
  if (!spec.characters)
    metadata.set("tokenizer.ggml.pre", MetaValue::string(preset ? spec.pre_name : std::string(kOwnPre)));
  metadata.set("tokenizer.ggml.tokens", MetaValue::strings(spec.tokens));
  std::vector<std::int32_t> kinds;
  for (const TokenKind kind : spec.kinds) kinds.push_back(static_cast<std::int32_t>(kind));
  metadata.set("tokenizer.ggml.token_type", MetaValue::i32s(std::move(kinds)));
  metadata.set("tokenizer.ggml.merges", MetaValue::strings(spec.merges));
  for (const auto& [key, id] : kSpecialIds) {
    if (spec.*id) metadata.set(std::string(key), MetaValue::u32(static_cast<std::uint32_t>(*(spec.*id))));
  }
  metadata.set("tokenizer.ggml.add_bos_token", MetaValue::boolean(spec.add_bos));
  metadata.set("tokenizer.ggml.add_eos_token", MetaValue::boolean(spec.add_eos));
  if (spec.characters) return {};
  if (spec.unknown_byte)
    metadata.set(std::string(kUnknownByteKey), MetaValue::u32(static_cast<std::uint32_t>(*spec.unknown_byte)));
  if (spec.fuse_unknown) metadata.set(std::string(kFuseUnknownKey), MetaValue::boolean(true));
  if (spec.add_prefix_space) metadata.set(std::string(kPrefixSpaceKey), MetaValue::boolean(true));
  if (preset == nullptr) metadata.set(std::string(kPatternsKey), MetaValue::strings(spec.patterns));
  if (spec.nfc != (preset != nullptr && preset->nfc)) {
    metadata.set(std::string(kNfcKey), MetaValue::boolean(spec.nfc));
  }
  if (spec.ignore_merges != (preset != nullptr && preset->ignore_merges)) {
    metadata.set(std::string(kIgnoreMergesKey), MetaValue::boolean(spec.ignore_merges));
  }
  return {};
}

}  // namespace dllm
