#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// A token with a role in the file: it begins or ends answers, pads or masks.
struct TokenRole {
  std::string_view name;  ///< for the warning: "eos"
  TokenId id = 0;
};

/// Files often mark a token with a role as an ordinary, unused or unknown one. Then its text would be read as letters,
/// and its id written as such. The role decides: the token becomes a control token, with a warning (as in llama.cpp's
/// "control-looking token ... its type will be overridden"). Except if BPE makes it from letters: such a token is a
/// word that ends answers too, like a newline.
void settle_roles(TokenizerSpec& spec, std::span<const TokenRole> roles);
/// The same for the roles in `spec`.
void settle_roles(TokenizerSpec& spec);

/// Whether the tokenizer makes the token from letters: it is one, or the result of a merge.
bool is_word(const TokenizerSpec& spec, TokenId id);

/// Tokens that a tokenizer's files name as special ones.
class NamedSpecials {
 public:
  /// `names`: how many there will be; for many the vocabulary gets an index. `spec` must outlive this.
  NamedSpecials(TokenizerSpec& spec, std::size_t names);

  std::optional<TokenId> find(const std::string& text) const;
  /// The id of a token, a control token from now on. As in transformers, a text that is not in the vocabulary gets the
  /// next free id.
  TokenId add(const std::string& text, std::string_view name);

 private:
  static constexpr std::size_t kFew = 16;
  TokenizerSpec& spec_;
  bool indexed_;
  std::unordered_map<std::string, TokenId> ids_;
};

}  // namespace dllm
