#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "text/tokenizer/end_of_turn.h"
#include "text/tokenizer/hf_json.h"
#include "text/tokenizer/hf_pretokenizer.h"
#include "text/tokenizer/hf_spec.h"
#include "text/tokenizer/roles.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

namespace dllm {
namespace {

using hf::Json;

constexpr std::int64_t kMaxId = (1 << 21) - 1;  // a larger id would create gigabytes of placeholders

struct AddedToken {
  std::string content;
  bool special = false;
  AddedTokenFlags flags;
};

Expected<TokenId> read_id(const Json& value, const std::string& token) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > kMaxId) {
    return hf::invalid(fmt::format("the id of token '{}' is not an integer in 0..{}", token, kMaxId));
  }
  return static_cast<TokenId>(value.get<std::int64_t>());
}

// Places a token; slots in between that nothing else fills become unused tokens.
Expected<void> place(TokenizerSpec& spec, TokenId id, const std::string& text, TokenKind kind) {
  const auto slot = static_cast<std::size_t>(id);
  if (slot >= spec.tokens.size()) {
    spec.tokens.resize(slot + 1);
    spec.kinds.resize(slot + 1, TokenKind::kUnused);
  }
  if (spec.kinds[slot] != TokenKind::kUnused && spec.tokens[slot] != text) {
    return hf::invalid(fmt::format("id {} is claimed by '{}' and by '{}'", id, spec.tokens[slot], text));
  }
  spec.tokens[slot] = text;
  spec.kinds[slot] = kind;
  return {};
}

Expected<void> check_model(const Json& model) {
  const std::string type = hf::text(model, "type");
  if (!type.empty() && type != "BPE") {
    return hf::unsupported(fmt::format("tokenizer model '{}'", type), "only byte-level BPE is supported");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!hf::text(model, key).empty()) return hf::unsupported(fmt::format("'{}'", key));
  }
  if (const Json* dropout = hf::member(model, "dropout"); dropout != nullptr && *dropout != 0.0) {
    return hf::unsupported("BPE dropout");
  }
  return {};
}

Expected<void> read_merges(const Json& model, TokenizerSpec& spec) {
  const Json* merges = hf::member(model, "merges");
  if (merges == nullptr || !merges->is_array()) return hf::invalid("the model has no list 'merges'");
  spec.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      spec.merges.push_back(merge.get_ref<const std::string&>());
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
      return hf::invalid(fmt::format("merge {} is neither a string nor a pair of strings", spec.merges.size()));
    }
    spec.merges.push_back(merge[0].get_ref<const std::string&>() + " " + merge[1].get_ref<const std::string&>());
  }
  return {};
}

Expected<void> read_model(const Json& root, TokenizerSpec& spec) {
  const Json* model = hf::member(root, "model");
  if (model == nullptr || !model->is_object()) return hf::invalid("there is no 'model'");
  DLLM_CHECK_OK(check_model(*model));
  DLLM_TRY(spec.characters, hf::flag(*model, "byte_fallback", false));
  const Json* vocabulary = hf::member(*model, "vocab");
  if (vocabulary == nullptr || !vocabulary->is_object()) return hf::invalid("the model has no object 'vocab'");
  for (const auto& [text, value] : vocabulary->items()) {
    DLLM_TRY(const TokenId id, read_id(value, text));
    DLLM_CHECK_OK(place(spec, id, text, TokenKind::kNormal));
  }
  DLLM_TRY(spec.ignore_merges, hf::flag(*model, "ignore_merges", false));
  if (const std::string unknown = hf::text(*model, "unk_token"); !spec.characters && !unknown.empty()) {
    const auto found = std::ranges::find(spec.tokens, unknown);
    if (found != spec.tokens.end()) spec.unknown_byte = static_cast<TokenId>(found - spec.tokens.begin());
    DLLM_TRY(spec.fuse_unknown, hf::flag(*model, "fuse_unk", false));
  }
  return read_merges(*model, spec);
}

Expected<AddedToken> read_added(const Json& entry, TokenId id) {
  AddedToken token;
  token.content = hf::text(entry, "content");
  if (token.content.empty()) return hf::invalid(fmt::format("added token {} has no content", id));
  DLLM_TRY(token.special, hf::flag(entry, "special", false));
  token.flags.id = id;
  DLLM_TRY(token.flags.lstrip, hf::flag(entry, "lstrip", false));
  DLLM_TRY(token.flags.rstrip, hf::flag(entry, "rstrip", false));
  DLLM_TRY(token.flags.normalized, hf::flag(entry, "normalized", !token.special));
  DLLM_TRY(const bool single_word, hf::flag(entry, "single_word", false));
  if (single_word) return hf::unsupported(fmt::format("single_word in added token '{}'", token.content));
  return token;
}

// tokenizer.json lists added tokens, tokenizer_config.json may repeat or extend them; the latter is read second and
// determines flags, as in transformers.
Expected<void> collect_added(const Json& root, const Json& config, std::map<TokenId, AddedToken>& added) {
  if (const Json* list = hf::member(root, "added_tokens")) {
    if (!list->is_array()) return hf::invalid("'added_tokens' is not a list");
    for (const Json& entry : *list) {
      const Json* value = hf::member(entry, "id");
      DLLM_TRY(const TokenId id, read_id(value != nullptr ? *value : Json(), hf::text(entry, "content")));
      DLLM_TRY(AddedToken token, read_added(entry, id));
      if (!added.emplace(id, std::move(token)).second)
        return hf::invalid(fmt::format("added token {} occurs twice", id));
    }
  }
  const Json* decoder = hf::member(config, "added_tokens_decoder");
  if (decoder == nullptr) return {};
  if (!decoder->is_object()) return hf::invalid("'added_tokens_decoder' is not an object");
  for (const auto& [key, entry] : decoder->items()) {
    TokenId id = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxId) {
      return hf::invalid(fmt::format("'{}' in added_tokens_decoder is not a token id", key));
    }
    DLLM_TRY(AddedToken token, read_added(entry, id));
    const auto known = added.find(id);
    if (known != added.end() && known->second.content != token.content) {
      return hf::invalid(fmt::format("id {} is '{}' in tokenizer.json but '{}' in tokenizer_config.json", id,
                                     known->second.content, token.content));
    }
    added.insert_or_assign(id, std::move(token));
  }
  return {};
}

void fill_holes(TokenizerSpec& spec) {
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.kinds[id] == TokenKind::kUnused) spec.tokens[id] = fmt::format("[PAD{}]", id);
  }
}

std::string token_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : hf::text(value, "content");
}

/// The token that the files name for a role. tokenizer_config.json is asked first, as in transformers.
const Json* named_token(const Json& config, const Json& special, const char* key) {
  const Json* value = hf::member(config, key);
  if (value == nullptr || token_text(*value).empty()) value = hf::member(special, key);
  return value != nullptr && !token_text(*value).empty() ? value : nullptr;
}

/// Flags that an entry {"content": ..., "lstrip": true} gives a token that it adds.
Expected<void> read_named_flags(const Json& entry, TokenId id, TokenizerSpec& spec) {
  if (!entry.is_object()) return {};
  AddedTokenFlags flags{.id = id};
  DLLM_TRY(flags.lstrip, hf::flag(entry, "lstrip", false));
  DLLM_TRY(flags.rstrip, hf::flag(entry, "rstrip", false));
  if (flags.lstrip || flags.rstrip) spec.flags.push_back(flags);
  return {};
}

/// Makes the token special if it is not yet. Its order among new tokens is transformers'.
Expected<TokenId> name_special(TokenizerSpec& spec, NamedSpecials& specials, const Json& entry, std::string_view role) {
  const std::string text = token_text(entry);
  const auto known = specials.find(text);
  const bool was_added = known && spec.kinds[static_cast<std::size_t>(*known)] == TokenKind::kControl;
  const TokenId id = specials.add(text, role);
  if (!was_added) DLLM_CHECK_OK(read_named_flags(entry, id, spec));
  return id;
}

Expected<void> read_roles(const Json& config, const Json& special, TokenizerSpec& spec) {
  const std::pair<const char*, std::optional<TokenId> TokenizerSpec::*> roles[] = {
      {"bos_token", &TokenizerSpec::bos},   {"eos_token", &TokenizerSpec::eos},
      {"unk_token", &TokenizerSpec::unk},   {"sep_token", nullptr},
      {"pad_token", &TokenizerSpec::pad},   {"cls_token", nullptr},
      {"mask_token", &TokenizerSpec::mask},
  };
  std::vector<const Json*> lists;
  std::size_t names = std::size(roles);
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* list = hf::member(config, key);
    if (list == nullptr) list = hf::member(special, key);
    if (list == nullptr || !list->is_structured()) continue;
    lists.push_back(list);
    names += list->size();
  }
  NamedSpecials specials(spec, names);
  for (const auto& [key, role] : roles) {
    const Json* value = named_token(config, special, key);
    if (value == nullptr) continue;
    const std::string_view name(key, std::string_view(key).size() - std::string_view("_token").size());
    DLLM_TRY(const TokenId id, name_special(spec, specials, *value, name));
    if (role != nullptr) spec.*role = id;
  }
  for (const Json* list : lists)
    for (const Json& entry : *list)  // a list, or an object {name: token}
      if (!token_text(entry).empty()) DLLM_CHECK_OK(name_special(spec, specials, entry, "additional special"));
  return {};
}

// The id of a SpecialToken item of TemplateProcessing: looked up in special_tokens, whose ids take precedence.
Expected<TokenId> template_token(const Json& processor, const Json& item) {
  const std::string name = hf::text(item, "id");
  const Json* tokens = hf::member(processor, "special_tokens");
  const Json* entry = tokens != nullptr ? hf::member(*tokens, name.c_str()) : nullptr;
  const Json* ids = entry != nullptr ? hf::member(*entry, "ids") : nullptr;
  if (ids == nullptr || !ids->is_array() || ids->size() != 1) {
    return hf::unsupported(fmt::format("special token '{}' of the post-processor is not exactly one id", name));
  }
  return read_id((*ids)[0], name);
}

Expected<void> set_edge(std::optional<TokenId>& role, bool& add, TokenId id, const char* name) {
  if (add) return hf::unsupported(fmt::format("a post-processor that adds two tokens at the place of {}", name));
  if (role && *role != id) {
    return hf::unsupported(fmt::format("the post-processor adds token {}, but {} is {}", id, name, *role));
  }
  role = id;
  add = true;
  return {};
}

Expected<void> read_template(const Json& processor, TokenizerSpec& spec) {
  const Json* single = hf::member(processor, "single");
  if (single == nullptr || !single->is_array()) return hf::invalid("TemplateProcessing has no list 'single'");
  bool after_text = false;
  for (const Json& item : *single) {
    if (hf::member(item, "Sequence") != nullptr) {
      after_text = true;
    } else if (const Json* special = hf::member(item, "SpecialToken")) {
      DLLM_TRY(const TokenId id, template_token(processor, *special));
      DLLM_CHECK_OK(after_text ? set_edge(spec.eos, spec.add_eos, id, "eos")
                               : set_edge(spec.bos, spec.add_bos, id, "bos"));
    } else {
      return hf::invalid("TemplateProcessing holds an unknown item");
    }
  }
  return {};
}

Expected<void> read_post_processor(const Json& processor, TokenizerSpec& spec, int depth = 0) {
  const std::string type = hf::text(processor, "type");
  if (type == "ByteLevel") return {};  // only trims offsets, which are not used here
  if (type == "TemplateProcessing") return read_template(processor, spec);
  const Json* steps = hf::member(processor, "processors");
  if (type == "Sequence" && steps != nullptr && steps->is_array() && depth < 8) {
    for (const Json& step : *steps) DLLM_CHECK_OK(read_post_processor(step, spec, depth + 1));
    return {};
  }
  return hf::unsupported(fmt::format("post-processor '{}'", type));
}

Expected<void> read_added_tokens(const Json& root, const Json& config, TokenizerSpec& spec) {
  std::map<TokenId, AddedToken> added;
  DLLM_CHECK_OK(collect_added(root, config, added));
  for (const auto& [id, token] : added) {
    DLLM_CHECK_OK(place(spec, id, token.content, token.special ? TokenKind::kControl : TokenKind::kUserDefined));
    // Without a normalizer "normalized" only changes the order of two passes; keep it only if that matters.
    AddedTokenFlags flags = token.flags;
    flags.normalized = flags.normalized && spec.nfc;
    if (flags.lstrip || flags.rstrip || flags.normalized) spec.flags.push_back(flags);
  }
  fill_holes(spec);
  return {};
}

/// A step {"type": "Replace", "pattern": {"String": from}, "content": to}.
bool replaces(const Json& step, std::string_view from, std::string_view to) {
  const Json* pattern = hf::member(step, "pattern");
  return hf::text(step, "type") == "Replace" && pattern != nullptr && hf::text(*pattern, "String") == from &&
         hf::text(step, "content") == to;
}

/// Vocabularies of characters exist in one form (Gemma): spaces become U+2581, nothing is split, and decoding reverses
/// both that and the fallback to bytes.
Expected<void> check_characters(const Json& normalizer, const Json& pretokenizer, const Json& decoder) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  if (!replaces(normalizer, " ", kMark))
    return hf::unsupported("a normalizer of byte_fallback vocabularies that does not replace spaces by U+2581");
  // After the normalizer there is no space left to split at.
  const Json* pattern = hf::member(pretokenizer, "pattern");
  const bool idle =
      hf::text(pretokenizer, "type") == "Split" && pattern != nullptr && hf::text(*pattern, "String") == " ";
  if (!pretokenizer.is_null() && !idle) return hf::unsupported("a pre-tokenizer of byte_fallback vocabularies");
  const Json* steps = hf::member(decoder, "decoders");
  const bool fits = hf::text(decoder, "type") == "Sequence" && steps != nullptr && steps->is_array() &&
                    steps->size() == 3 && replaces((*steps)[0], kMark, " ") &&
                    hf::text((*steps)[1], "type") == "ByteFallback" && hf::text((*steps)[2], "type") == "Fuse";
  if (!fits) return hf::unsupported("a decoder of byte_fallback vocabularies other than Replace, ByteFallback, Fuse");
  return {};
}

/// The kinds of <0x00> to <0xFF>.
void mark_bytes(TokenizerSpec& spec) {
  std::map<std::string, bool> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes[fmt::format("<0x{:02X}>", byte)] = true;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    if (spec.kinds[id] == TokenKind::kNormal && bytes.contains(spec.tokens[id])) spec.kinds[id] = TokenKind::kByte;
}

}  // namespace

Expected<TokenizerSpec> Tokenizer::spec_from_hf(const std::string& tokenizer_json, const std::string& config_json,
                                                const std::string& special_json) {
  if (tokenizer_json.empty()) return hf::invalid("this is not a JSON object");
  DLLM_TRY(const Json root, hf::object_of(tokenizer_json, "tokenizer.json"));
  DLLM_TRY(const Json config, hf::object_of(config_json, "tokenizer_config.json"));
  DLLM_TRY(const Json special, hf::object_of(special_json, "special_tokens_map.json"));
  return hf::spec_of(root, config, special);
}

Expected<TokenizerSpec> hf::spec_of(const Json& root, const Json& config, const Json& special) {
  const auto entry = [&](const char* key) {
    const Json* value = hf::member(root, key);
    return value != nullptr ? *value : Json();
  };
  TokenizerSpec spec;
  DLLM_CHECK_OK(read_model(root, spec));
  if (spec.characters) {
    DLLM_CHECK_OK(check_characters(entry("normalizer"), entry("pre_tokenizer"), entry("decoder")));
    mark_bytes(spec);
  } else {
    DLLM_CHECK_OK(read_hf_pretokenizer(entry("pre_tokenizer"), spec));
    DLLM_CHECK_OK(read_hf_normalizer(entry("normalizer"), spec));
  }
  DLLM_CHECK_OK(read_added_tokens(root, config, spec));
  DLLM_CHECK_OK(read_roles(config, special, spec));
  if (const Json processor = entry("post_processor"); !processor.is_null()) {
    DLLM_CHECK_OK(read_post_processor(processor, spec));
  }
  if (const std::string decoder = hf::text(entry("decoder"), "type");
      !spec.characters && !decoder.empty() && decoder != "ByteLevel") {
    return hf::unsupported(fmt::format("decoder '{}'", decoder));
  }
  DLLM_TRY(spec.add_bos, hf::flag(config, "add_bos_token", spec.add_bos));
  DLLM_TRY(spec.add_eos, hf::flag(config, "add_eos_token", spec.add_eos));
  spec.eot = guess_end_of_turn(spec);
  return spec;
}

}  // namespace dllm
