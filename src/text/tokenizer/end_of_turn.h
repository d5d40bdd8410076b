#pragma once

#include <optional>

#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// The token that ends a chat turn, for files that do not define one (tokenizer.json never does): the first control or
/// user-defined token among the usual texts, the same guess as in llama.cpp.
/// `any_kind`: also a token that is marked as another kind, if the tokenizer does not make it from letters.
std::optional<TokenId> guess_end_of_turn(const TokenizerSpec& spec, bool any_kind = false);

}  // namespace dllm
