#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/try.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/presets.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/utf8.h"

namespace dllm {

struct Tokenizer::Impl {
  Impl(TokenizerSpec s, TokenIndex i, Bpe b, Pretokenizer p)
      : spec(std::move(s)), index(std::move(i)), bpe(std::move(b)), pretokenizer(std::move(p)) {}

  TokenizerSpec spec;
  TokenIndex index;  // by text
  Bpe bpe;
  Pretokenizer pretokenizer;
  AddedTokenMatcher raw, normalized;  // matched before and after normalisation
  std::vector<std::string> bytes;     // by id

  void add_added_tokens();
  template <class OnText>
  void partition(const AddedTokenMatcher& matcher, std::string_view text, bool parse_special, std::string_view marks,
                 std::vector<TokenId>& out, OnText on_text) const;
  void encode_words(std::string_view text, std::vector<TokenId>& out) const;
  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;
  TokenKind kind(TokenId id) const { return spec.kinds[static_cast<std::size_t>(id)]; }
};

namespace {

constexpr std::size_t kMaxVocabulary = 1U << 21;  // eight times the largest published one

Error invalid(std::string what, std::string hint = "") {
  return {ErrorCode::kInvalidFile, std::move(what), "tokenizer", std::move(hint)};
}

// The unknown token's text is one like any other special one's, as in llama.cpp.
bool is_added(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUserDefined || kind == TokenKind::kUnknown;
}

Expected<void> check_ids(const TokenizerSpec& spec) {
  const std::pair<const char*, std::optional<TokenId>> ids[] = {{"bos", spec.bos},
                                                                {"eos", spec.eos},
                                                                {"eot", spec.eot},
                                                                {"pad", spec.pad},
                                                                {"mask", spec.mask},
                                                                {"unk", spec.unk},
                                                                {"unknown byte's", spec.unknown_byte}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || static_cast<std::size_t>(*id) >= spec.tokens.size())) {
      return invalid(fmt::format("{} token id {} is outside the vocabulary of {}", name, *id, spec.tokens.size()));
    }
  }
  if (spec.add_bos && !spec.bos) return invalid("add_bos is set, but there is no bos token");
  if (spec.add_eos && !spec.eos) return invalid("add_eos is set, but there is no eos token");
  return {};
}

Expected<void> check_spec(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return invalid("the vocabulary is empty");
  if (spec.tokens.size() > kMaxVocabulary) {
    return invalid(
        fmt::format("a vocabulary of {} tokens is above the limit of {}", spec.tokens.size(), kMaxVocabulary));
  }
  if (spec.tokens.size() != spec.kinds.size()) {
    return invalid(fmt::format("{} tokens but {} token types", spec.tokens.size(), spec.kinds.size()));
  }
  for (std::size_t id = 0; id < spec.kinds.size(); ++id) {
    if (spec.characters || spec.kinds[id] != TokenKind::kByte) continue;
    return Error{ErrorCode::kUnsupported, fmt::format("token {} is a byte-fallback token", id), "tokenizer",
                 "only byte-level BPE vocabularies are supported"};
  }
  for (const AddedTokenFlags& flags : spec.flags) {
    if (flags.id < 0 || static_cast<std::size_t>(flags.id) >= spec.tokens.size()) {
      return invalid(fmt::format("flags for token {}, outside the vocabulary of {}", flags.id, spec.tokens.size()));
    }
  }
  return check_ids(spec);
}

// Unused slots and empty texts can be neither matched nor produced, so they may repeat.
Expected<TokenIndex> make_index(const TokenizerSpec& spec) {
  TokenIndex index;
  index.reserve(spec.tokens.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.kinds[id] == TokenKind::kUnused || spec.tokens[id].empty()) continue;
    const auto [found, fresh] = index.try_emplace(spec.tokens[id], static_cast<TokenId>(id));
    if (!fresh) {
      return invalid(
          fmt::format("tokens {} and {} are both '{}'", found->second, id, replace_invalid_utf8(spec.tokens[id])));
    }
  }
  return index;
}

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool here = text.substr(at).starts_with(from);
    out += here ? to : text.substr(at, 1);
    at += here ? from.size() : 1;
  }
  return out;
}

/// The byte of "<0xAB>"; -1: not of this form.
int fallback_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

/// The text of a normal or byte token, in a vocabulary of characters.
std::string character_bytes(const std::string& token) {
  if (const int byte = fallback_byte(token); byte >= 0) return {static_cast<char>(static_cast<std::uint8_t>(byte))};
  return replaced(token, kSpaceMark, " ");
}

std::vector<std::string> make_bytes(const TokenizerSpec& spec) {
  std::vector<std::string> bytes(spec.tokens.size());
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    if (spec.kinds[id] == TokenKind::kUnused) continue;
    if (spec.characters && (spec.kinds[id] == TokenKind::kNormal || spec.kinds[id] == TokenKind::kByte)) {
      bytes[id] = character_bytes(spec.tokens[id]);
      continue;
    }
    bytes[id] = spec.tokens[id];
    if (spec.kinds[id] != TokenKind::kNormal) continue;
    // A normal token outside the alphabet represents its own text, as in Hugging Face's ByteLevel decoder.
    if (auto decoded = decode_alphabet(spec.tokens[id])) bytes[id] = std::move(*decoded);
  }
  return bytes;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Expected<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  DLLM_CHECK_OK(check_spec(spec));
  DLLM_TRY(TokenIndex index, make_index(spec));
  DLLM_TRY(Bpe bpe, spec.characters ? Bpe::over_characters(index, spec.merges)
                                    : Bpe::create(index, spec.merges, {spec.unknown_byte, spec.fuse_unknown}));
  DLLM_TRY(Pretokenizer pretokenizer, Pretokenizer::compile(spec.patterns, spec.rules));
  auto impl = std::make_unique<Impl>(std::move(spec), std::move(index), std::move(bpe), std::move(pretokenizer));
  impl->bytes = make_bytes(impl->spec);
  impl->add_added_tokens();
  if (const std::string missing = impl->bpe.missing_bytes(); !missing.empty()) {
    std::vector<std::string> names;
    for (const char byte : missing) names.push_back(fmt::format("{:02X}", static_cast<std::uint8_t>(byte)));
    const std::string fate = impl->spec.unknown_byte ? fmt::format("become token {}", *impl->spec.unknown_byte)
                                                     : std::string("are left out of texts");
    impl->spec.warnings.push_back(fmt::format("the vocabulary has no tokens for {} bytes ({}): they {}", names.size(),
                                              fmt::join(names, " "), fate));
  }
  return Tokenizer(std::move(impl));
}

void Tokenizer::Impl::add_added_tokens() {
  std::unordered_map<TokenId, AddedTokenFlags> flags;
  for (const AddedTokenFlags& f : spec.flags) flags[f.id] = f;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!is_added(spec.kinds[i]) || spec.tokens[i].empty()) continue;
    const AddedTokenFlags f = flags.contains(id) ? flags[id] : AddedTokenFlags{};
    const AddedTokenMatcher::Token token{id, spec.kinds[i] != TokenKind::kUserDefined, f.lstrip, f.rstrip};
    if (f.normalized) {
      normalized.add(spec.nfc ? to_nfc(spec.tokens[i]) : spec.tokens[i], token);
    } else {
      raw.add(spec.tokens[i], token);
    }
  }
}

namespace {

std::size_t leading_space(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const Utf8Char c = utf8_at(text, end);
    if (!c.valid || !is_white_space(c.code)) break;
    end += c.size;
  }
  return end;
}

std::size_t trailing_space_begin(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    std::size_t at = begin - 1;
    while (at > 0 && begin - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    const Utf8Char c = utf8_at(text, at);
    if (!c.valid || at + c.size != begin || !is_white_space(c.code)) break;
    begin = at;
  }
  return begin;
}

}  // namespace

template <class OnText>
void Tokenizer::Impl::partition(const AddedTokenMatcher& matcher, std::string_view text, bool parse_special,
                                std::string_view marks, std::vector<TokenId>& out, OnText on_text) const {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto match = matcher.empty() ? std::nullopt : matcher.find(text, at, parse_special, marks);
    if (!match) break;
    std::string_view before = text.substr(at, match->begin - at);
    if (match->token->lstrip) before = before.substr(0, trailing_space_begin(before));
    if (!before.empty()) on_text(before);
    out.push_back(match->token->id);
    at = match->end;
    if (match->token->rstrip) at += leading_space(text.substr(at));
  }
  if (at < text.size()) on_text(text.substr(at));
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (spec.ignore_merges) {
    const auto whole = index.find(encode_alphabet(piece));
    if (whole != index.end() && kind(whole->second) == TokenKind::kNormal) {
      out.push_back(whole->second);
      return;
    }
  }
  bpe.encode(piece, out);
}

void Tokenizer::Impl::encode_words(std::string_view text, std::vector<TokenId>& out) const {
  if (spec.characters) return bpe.encode(replaced(text, " ", kSpaceMark), out);
  std::string prefixed;
  if (spec.add_prefix_space && !text.starts_with(' ')) {
    prefixed = " " + std::string(text);
    text = prefixed;
  }
  std::vector<std::string_view> pieces;
  pretokenizer.split(text, pieces);
  for (const std::string_view piece : pieces) encode_piece(piece, out);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool parse_special) const {
  return encode(text, parse_special, {});
}

std::vector<TokenId> Tokenizer::encode(const MarkedText& text) const { return encode(text.bytes, true, text.marks); }

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool parse_special, std::string_view marks) const {
  std::vector<TokenId> out;
  impl_->partition(impl_->raw, text, parse_special, marks, out, [&](std::string_view part) {
    std::string_view part_marks =
        marks.empty() ? marks : marks.substr(static_cast<std::size_t>(part.data() - text.data()), part.size());
    bool special = parse_special;
    std::string composed;
    if (impl_->spec.nfc) {
      composed = to_nfc(part);
      // Marks apply only to unchanged text. Control tokens matched after normalisation are not known to exist.
      if (composed != part && part_marks.find(MarkedText::kContent) != part_marks.npos) special = false;
      if (composed != part) part_marks = {};
      part = composed;
    }
    impl_->partition(impl_->normalized, part, special, part_marks, out,
                     [&](std::string_view words) { impl_->encode_words(words, out); });
  });
  return out;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool with_special) const {
  std::string text;
  for (const TokenId id : ids) {
    if (with_special || !is_control(id)) text += bytes(id);
  }
  return text;
}

bool Tokenizer::is_control(TokenId id) const {
  return id >= 0 && id < vocab_size() &&
         (impl_->kind(id) == TokenKind::kControl || impl_->kind(id) == TokenKind::kUnknown);
}

std::string Tokenizer::missing_bytes() const { return impl_->bpe.missing_bytes(); }

TokenId Tokenizer::vocab_size() const { return static_cast<TokenId>(impl_->spec.tokens.size()); }

const TokenizerSpec& Tokenizer::spec() const { return impl_->spec; }

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  const auto special = impl_->index.find(std::string(text));
  if (special != impl_->index.end() && impl_->kind(special->second) != TokenKind::kNormal) return special->second;
  const auto normal =
      impl_->index.find(impl_->spec.characters ? replaced(text, " ", kSpaceMark) : encode_alphabet(text));
  if (normal != impl_->index.end() && bytes(normal->second) == text) return normal->second;
  if (special != impl_->index.end() && bytes(special->second) == text) return special->second;
  return std::nullopt;
}

std::vector<std::string> Tokenizer::preset_names() {
  std::vector<std::string> names;
  for (const TokenizerPreset& preset : tokenizer_presets()) {
    names.emplace_back(preset.name);
    names.insert(names.end(), preset.aliases.begin(), preset.aliases.end());
  }
  return names;
}

}  // namespace dllm
