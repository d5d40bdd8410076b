#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "decode/denoiser.h"
#include "dllm/generate.h"
#include "text/tokenizer.h"

namespace dllm {

/// One request while it is denoised: its caches, its loop, and what is recorded for the result. Whoever drives it owns
/// the batch: prepare(), forward, absorb(), until prepare() has nothing more.
class Sequence {
 public:
  /// `tokenizer` may be null (no text then); `latency` too. `resolved` comes from resolve_options(). All are borrowed.
  /// Errors: kUsage (an id outside the vocabulary, too long for the context), kResource.
  static Expected<std::unique_ptr<Sequence>> start(Backend& backend, const Tokenizer* tokenizer,
                                                   const std::vector<TokenId>& prompt, const GenerateOptions& resolved,
                                                   const LatencyTable* latency);

  /// See Denoiser::prepare().
  std::span<const SequenceStep> prepare();
  /// See Denoiser::absorb(). The step is then in the record.
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  StepEvent event(const DenoiseStep& step) const;
  /// The result as it stands; the sequence is of no further use. `cancelled`: stopped from outside.
  Generation finish(bool cancelled, double seconds);

 private:
  Sequence(const Tokenizer* tokenizer, std::vector<TokenId> prompt) : tokenizer_(tokenizer) {
    result_.prompt_ids = std::move(prompt);
  }
  void move_record(const Edit& edit);
  Position answer_end() const;
  std::string text(Position end, bool complete) const;

  const Tokenizer* tokenizer_;
  std::unique_ptr<KvCache> cache_, unconditional_;
  std::unique_ptr<Denoiser> denoiser_;
  std::int32_t pass_ = 0;  ///< index of the forward pass being made (the first of a guided pair)
  Generation result_;
};

}  // namespace dllm
