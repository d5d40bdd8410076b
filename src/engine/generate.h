#pragma once

#include <stop_token>
#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "text/tokenizer.h"

namespace dllm {

/// One request on one backend: builds the method, runs the loop, reports every step. `tokenizer` may be null (no text
/// then). `resolved` comes from resolve_options(). Errors: kUsage (too long for the context), kResource.
Expected<Generation> generate(Backend& backend, const Tokenizer* tokenizer, const std::vector<TokenId>& prompt,
                              const GenerateOptions& resolved, const StepCallback& on_step, std::stop_token stop);

/// FNV-1a over the little-endian ids: the fingerprint of the final line.
std::uint64_t hash_ids(const std::vector<TokenId>& ids);

}  // namespace dllm
