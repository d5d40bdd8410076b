#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "backend/prompt_images.h"
#include "base/types.h"
#include "decode/decoder/replay_decoder.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "engine/answer_host.h"
#include "engine/constraint.h"

namespace dllm {

/// Called after each step with the length of the answer's final prefix: how fast it grows, without the cost of events.
using SettledCallback = std::function<void(Position)>;

/// What generate() may get beside a prompt and options.
struct GenerateCall {
  StepCallback on_step{};
  SettledCallback on_settled{};
  std::stop_token stop{};
  const CommitSchedule* replay = nullptr;  ///< what is committed (see check_replayed()); null: the method chooses
  ConstraintPtr constraint{};              ///< of the options (Constraints::get)
  std::shared_ptr<const PromptImages> images{};
};

/// One request on one backend: builds the method, runs the loop, reports every step. `resolved` comes from
/// resolve_options(). Errors: kUsage (too long for the context), kResource.
Expected<Generation> generate(const AnswerHost& host, const std::vector<TokenId>& prompt,
                              const ResolvedOptions& resolved, const GenerateCall& call = {});

/// The same for many requests. `replays`, and `seeds` instead of the options': one per request, or empty.
struct BatchCall {
  std::int32_t batch = 1;      ///< requests in one forward pass, at most
  AnswerCallback on_answer{};  ///< called for each answer as it finishes
  std::stop_token stop{};
  std::span<const CommitSchedule> replays{};
  ConstraintPtr constraint{};
  std::span<const std::uint64_t> seeds{};
  std::span<const std::shared_ptr<const PromptImages>> images{};  ///< one per request, or empty
};

/// Finished requests leave, and the next ones join. Each answer equals generate()'s, because no sequence's results
/// depend on the others in its batch. If `on_answer` returns false, or `stop` is set, running answers come back as
/// kCancelled and those not started come back without ids. Errors: those of generate(), with the request's index in
/// `where`.
Expected<std::vector<Generation>> generate_batch(const AnswerHost& host,
                                                 const std::vector<std::vector<TokenId>>& prompts,
                                                 const ResolvedOptions& resolved, const BatchCall& call);

/// FNV-1a over the little-endian ids: the hash in the final line.
std::uint64_t hash_ids(const std::vector<TokenId>& ids);

}  // namespace dllm
