#pragma once

#include <optional>

#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// The token that ends a chat turn, for files that do not define one (tokenizer.json never does): the first control or
/// user-defined token among the usual texts, the same guess as in llama.cpp.
std::optional<TokenId> guess_end_of_turn(const TokenizerSpec& spec);

}  // namespace dllm
