#include "text/tokenizer/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "text/tokenizer/byte_alphabet.h"
#include "text/utf8.h"

namespace dllm {
namespace {

std::string_view kind_name(TokenKind kind) {
  switch (kind) {
    case TokenKind::kNormal:
      return "an ordinary token";
    case TokenKind::kUnknown:
      return "unknown";
    case TokenKind::kUserDefined:
      return "no special token";
    case TokenKind::kUnused:
      return "unused";
    case TokenKind::kByte:
      return "a byte";
    case TokenKind::kControl:
      break;
  }
  return "a control token";
}

void make_control(TokenizerSpec& spec, TokenId id, std::string_view role) {
  const auto at = static_cast<std::size_t>(id);
  spec.warnings.push_back(
      fmt::format("token {} '{}' is marked as {}, but it is the {} token: it becomes a control token", id,
                  replace_invalid_utf8(spec.tokens[at]), kind_name(spec.kinds[at]), role));
  spec.kinds[at] = TokenKind::kControl;
}

bool is_letter(const TokenizerSpec& spec, TokenId id) {
  const std::string& text = spec.tokens[static_cast<std::size_t>(id)];
  const Utf8Char first = text.empty() ? Utf8Char() : utf8_at(text, 0);
  return first.valid && first.size == text.size() && (spec.characters || alphabet_to_byte(first.code));
}

bool is_merged(const TokenizerSpec& spec, std::string_view text) {
  return std::ranges::any_of(spec.merges, [&](std::string_view merge) {
    const std::size_t space = merge.find(' ');
    return merge.size() == text.size() + 1 && space != merge.npos && text.starts_with(merge.substr(0, space)) &&
           text.ends_with(merge.substr(space + 1));
  });
}

}  // namespace

bool is_word(const TokenizerSpec& spec, TokenId id) {
  return is_letter(spec, id) || is_merged(spec, spec.tokens[static_cast<std::size_t>(id)]);
}

void settle_roles(TokenizerSpec& spec, std::span<const TokenRole> roles) {
  // A list of ids that end answers may be as long as the vocabulary, and is_word() reads all merges.
  constexpr std::size_t kFew = 16;
  std::unordered_set<std::string> merged;
  if (roles.size() > kFew)
    for (const std::string_view merge : spec.merges)
      if (const std::size_t space = merge.find(' '); space != merge.npos)
        merged.insert(std::string(merge.substr(0, space)).append(merge.substr(space + 1)));
  const auto is_a_word = [&](TokenId id) {
    if (roles.size() <= kFew) return is_word(spec, id);
    return is_letter(spec, id) || merged.contains(spec.tokens[static_cast<std::size_t>(id)]);
  };
  for (const auto& [name, id] : roles) {
    if (id < 0 || static_cast<std::size_t>(id) >= spec.tokens.size()) continue;
    const auto at = static_cast<std::size_t>(id);
    const TokenKind kind = spec.kinds[at];
    // Slots without a text of their own stay what they are: nothing can be read as them.
    const bool empty = spec.tokens[at].empty() || spec.tokens[at] == fmt::format("[PAD{}]", id);
    if (kind == TokenKind::kControl || kind == TokenKind::kByte || empty) continue;
    if (kind == TokenKind::kUserDefined) continue;  // matched anyway, and shown on purpose
    if (kind == TokenKind::kUnknown && name == "unknown") continue;
    if (kind == TokenKind::kNormal && is_a_word(id)) continue;
    make_control(spec, id, name);
  }
}

void settle_roles(TokenizerSpec& spec) {
  std::vector<TokenRole> roles;
  for (const auto& [name, id] : {std::pair<std::string_view, std::optional<TokenId>>{"bos", spec.bos},
                                 {"eos", spec.eos},
                                 {"eot", spec.eot},
                                 {"padding", spec.pad},
                                 {"mask", spec.mask},
                                 {"unknown", spec.unk}})
    if (id) roles.push_back({name, *id});
  settle_roles(spec, roles);
}

NamedSpecials::NamedSpecials(TokenizerSpec& spec, std::size_t names) : spec_(spec), indexed_(names > kFew) {
  if (!indexed_) return;
  ids_.reserve(spec.tokens.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    if (spec.kinds[id] != TokenKind::kUnused) ids_.emplace(spec.tokens[id], static_cast<TokenId>(id));
}

std::optional<TokenId> NamedSpecials::find(const std::string& text) const {
  if (indexed_) {
    const auto known = ids_.find(text);
    return known == ids_.end() ? std::nullopt : std::optional(known->second);
  }
  for (std::size_t id = 0; id < spec_.tokens.size(); ++id)
    if (spec_.kinds[id] != TokenKind::kUnused && spec_.tokens[id] == text) return static_cast<TokenId>(id);
  return std::nullopt;
}

TokenId NamedSpecials::add(const std::string& text, std::string_view name) {
  TokenizerSpec& spec = spec_;
  if (const auto known = find(text)) {
    if (spec.kinds[static_cast<std::size_t>(*known)] != TokenKind::kControl) make_control(spec, *known, name);
    return *known;
  }
  const auto id = static_cast<TokenId>(spec.tokens.size());
  spec.warnings.push_back(fmt::format("the {} token '{}' is not in the vocabulary: it becomes token {}", name,
                                      replace_invalid_utf8(text), id));
  spec.tokens.push_back(text);
  spec.kinds.push_back(TokenKind::kControl);
  ++spec.appended;
  if (indexed_) ids_.emplace(text, id);
  return id;
}

}  // namespace dllm
