#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "base/types.h"
#include "decode/replay_decoder.h"
#include "decode/second_path.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// One request on one backend: builds the method, runs the loop, reports every step. `tokenizer` may be null (no text
/// then), and so may `latency` (what steps cost is unknown then), `second` (there is no second path then) and `replay`
/// (the method chooses what is committed; otherwise see check_replayed()).
/// `resolved` comes from resolve_options(). Errors: kUsage (too long for the context), kResource.
Expected<Generation> generate(Backend& backend, const Tokenizer* tokenizer, const std::vector<TokenId>& prompt,
                              const ResolvedOptions& resolved, const LatencyTable* latency, const StepCallback& on_step,
                              std::stop_token stop, PassRunner* second = nullptr,
                              const CommitSchedule* replay = nullptr);

/// Many requests, at most `batch` of them in one forward pass: finished ones leave and the next ones join. Each answer
/// is the one that generate() gives, as no sequence's results depend on the others of its batch. `on_answer` is called
/// as answers come; false ends it all, and so does `stop`: what is under way then comes back as kCancelled, and what
/// was not begun without any ids. `replays`: one per request, or empty. `stats.seconds` of an answer is its share of
/// the passes it was in. Errors: those of generate(), with the request's index in `where`.
Expected<std::vector<Generation>> generate_batch(Backend& backend, const Tokenizer* tokenizer,
                                                 const std::vector<std::vector<TokenId>>& prompts,
                                                 const ResolvedOptions& resolved, const LatencyTable* latency,
                                                 std::int32_t batch, const AnswerCallback& on_answer,
                                                 std::stop_token stop, PassRunner* second = nullptr,
                                                 std::span<const CommitSchedule> replays = {});

/// FNV-1a over the little-endian ids: the fingerprint of the final line.
std::uint64_t hash_ids(const std::vector<TokenId>& ids);

}  // namespace dllm
