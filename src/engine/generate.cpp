#include "engine/generate.h"

#include <chrono>

#include "base/hash.h"
#include "base/try.h"
#include "engine/sequence.h"

namespace dllm {

std::uint64_t hash_ids(const std::vector<TokenId>& ids) {
  Fnv1a hash;
  for (const TokenId id : ids) hash.add_word(static_cast<std::uint32_t>(id));
  return hash.value();
}

Expected<Generation> generate(Backend& backend, const Tokenizer* tokenizer, const std::vector<TokenId>& prompt,
                              const ResolvedOptions& resolved, const LatencyTable* latency, const StepCallback& on_step,
                              std::stop_token stop, PassRunner* second, const CommitSchedule* replay,
                              const ConstraintPtr& constraint) {
  DLLM_TRY(const auto sequence,
           Sequence::start(backend, tokenizer, prompt, resolved, latency, second, {.constraint = constraint}, replay));
  const auto start = std::chrono::steady_clock::now();
  bool cancelled = false;
  for (;;) {
    cancelled = stop.stop_requested();
    if (cancelled) break;
    DLLM_TRY(const auto batch, sequence->prepare());
    if (batch.empty()) break;
    DLLM_TRY(const auto scores, backend.forward(batch));
    DLLM_TRY(const DenoiseStep step, sequence->absorb(scores));
    cancelled = on_step && !on_step(sequence->event(step));
    if (cancelled) break;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return sequence->finish(cancelled, seconds.count());
}

}  // namespace dllm
