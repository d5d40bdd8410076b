#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "base/types.h"
#include "decode/decoder/replay_decoder.h"
#include "decode/loop/second_path.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "engine/constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// One request on one backend: builds the method, runs the loop, reports every step. May be null: `tokenizer` (no
/// text), `latency` (the cost of steps is unknown), `second` (no second path) and `replay` (the method chooses what is
/// committed; otherwise see check_replayed()). `resolved` comes from resolve_options(). `constraint`: of
/// `resolved` (Constraints::get). Errors: kUsage (too long for the context), kResource.
Expected<Generation> generate(Backend& backend, const Tokenizer* tokenizer, const std::vector<TokenId>& prompt,
                              const ResolvedOptions& resolved, const LatencyTable* latency, const StepCallback& on_step,
                              std::stop_token stop, PassRunner* second = nullptr,
                              const CommitSchedule* replay = nullptr, const ConstraintPtr& constraint = {});

/// Many requests, at most `batch` of them in one forward pass: finished ones leave and the next ones join. Each answer
/// equals generate()'s, because no sequence's results depend on the others in its batch. `on_answer` is called for each
/// answer as it finishes; if it returns false, or `stop` is set, running answers come back as kCancelled and those not
/// started come back without ids. `replays`, `seeds` instead of the options': one per request, or empty.
/// `stats.seconds` of an answer is its share of its passes. Errors: those of generate(), with the request's index in
/// `where`.
Expected<std::vector<Generation>> generate_batch(
    Backend& backend, const Tokenizer* tokenizer, const std::vector<std::vector<TokenId>>& prompts,
    const ResolvedOptions& resolved, const LatencyTable* latency, std::int32_t batch, const AnswerCallback& on_answer,
    std::stop_token stop, PassRunner* second = nullptr, std::span<const CommitSchedule> replays = {},
    const ConstraintPtr& constraint = {}, std::span<const std::uint64_t> seeds = {});

/// FNV-1a over the little-endian ids: the hash in the final line.
std::uint64_t hash_ids(const std::vector<TokenId>& ids);

}  // namespace dllm
