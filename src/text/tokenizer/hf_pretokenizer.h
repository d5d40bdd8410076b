#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dllm/error.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// Translates the `pre_tokenizer` entry of tokenizer.json into spec.patterns, spec.rules, spec.add_prefix_space.
/// kUnsupported: a step of another type, or a chain without ByteLevel (then the tokenizer is not byte-level).
Expected<void> read_hf_pretokenizer(const nlohmann::json& entry, TokenizerSpec& spec);

/// Translates `normalizer`: null, NFC, or a Sequence of these.
Expected<void> read_hf_normalizer(const nlohmann::json& entry, TokenizerSpec& spec);

}  // namespace dllm
