#include "text/tokenizer/end_of_turn.h"

#include <cstddef>
#include <optional>
#include <string_view>

#include "text/tokenizer/roles.h"

namespace dllm {

std::optional<TokenId> guess_end_of_turn(const TokenizerSpec& spec, bool any_kind) {
  constexpr std::string_view kTexts[] = {"<|eot_id|>", "<|im_end|>", "<|role_end|>", "<|end|>", "<end_of_turn>"};
  for (const std::string_view text : kTexts) {
    std::optional<bool> word;  // all merges are read for it, and a file may have the text again and again
    for (std::size_t id = 0; id < spec.tokens.size() && id < spec.kinds.size(); ++id) {
      const bool added = spec.kinds[id] == TokenKind::kControl || spec.kinds[id] == TokenKind::kUserDefined;
      if (spec.tokens[id] != text) continue;
      if (added) return static_cast<TokenId>(id);
      if (any_kind && !word) word = is_word(spec, static_cast<TokenId>(id));
      if (any_kind && !*word) return static_cast<TokenId>(id);
    }
  }
  return std::nullopt;
}

}  // namespace dllm
