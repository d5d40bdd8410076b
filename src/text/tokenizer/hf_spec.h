#pragma once

#include "dllm/error.h"
#include "text/tokenizer/hf_json.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm::hf {

/// The tokenizer defined by tokenizer.json, tokenizer_config.json and special_tokens_map.json. Errors name the first as
/// their place.
Expected<TokenizerSpec> spec_of(const Json& root, const Json& config, const Json& special);

}  // namespace dllm::hf
