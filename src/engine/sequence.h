#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "decode/denoiser.h"
#include "decode/refiner.h"
#include "decode/second_path.h"
#include "dllm/generate.h"
#include "text/tokenizer.h"

namespace dllm {

/// One request while it is denoised: its caches, its loop, and what is recorded for the result. Whoever drives it owns
/// the batch: prepare(), forward, absorb(), until prepare() has nothing more.
class Sequence {
 public:
  /// `tokenizer` may be null (no text then); `latency` and `second` too. `resolved` comes from resolve_options(). All
  /// are borrowed. Errors: kUsage (an id outside the vocabulary, too long for the context), kResource.
  static Expected<std::unique_ptr<Sequence>> start(Backend& backend, const Tokenizer* tokenizer,
                                                   const std::vector<TokenId>& prompt, const GenerateOptions& resolved,
                                                   const LatencyTable* latency, PassRunner* second = nullptr);

  /// See Denoiser::prepare() and Refiner::prepare().
  std::span<const SequenceStep> prepare();
  /// See their absorb(). The step is then in the record.
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
  std::unique_ptr<KvCache> cache_, unconditional_, side_;
  /// Masks are filled, or canvases refined: the two have the same calls.
  using Loop = std::variant<std::unique_ptr<Denoiser>, std::unique_ptr<Refiner>>;
  template <class F>
  auto in_loop(F call) const {
    return std::visit([&call](const auto& loop) { return call(*loop); }, loop_);
  }
  const Canvas& canvas() const;
  std::optional<Position> stop_position() const;

  Loop loop_;
  std::int32_t pass_ = 0;  ///< index of the forward pass being made (the first of a guided pair)
  Generation result_;
};

}  // namespace dllm
