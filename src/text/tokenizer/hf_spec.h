#pragma once

#include "dllm/error.h"
#include "text/tokenizer/hf_json.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm::hf {

/// The tokenizer defined by tokenizer.json and tokenizer_config.json. Errors name the former as their place.
Expected<TokenizerSpec> spec_of(const Json& root, const Json& config);

}  // namespace dllm::hf
