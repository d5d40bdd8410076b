#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "decode/decoder/replay_decoder.h"
#include "decode/loop/denoiser.h"
#include "decode/loop/mode_loop.h"
#include "decode/loop/refiner.h"
#include "decode/loop/slot_loop.h"
#include "dllm/generate.h"
#include "engine/answer_host.h"
#include "engine/answer_length.h"
#include "engine/constraint.h"
#include "engine/prefix_store.h"

namespace dllm {

/// One request while it is denoised: its caches, its loop, and the records for the result. The caller owns the batch:
/// prepare(), forward, absorb(), until prepare() returns nothing. How long the answer may become: AnswerLength.
class Sequence {
 public:
  /// The checks of start(), without starting. Errors: kUsage; kUnsupported (given tokens).
  static Expected<void> check(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                              const ResolvedOptions& resolved, const Given& given = {});

  /// `resolved` comes from resolve_options(). `replay`: which pass commits what, instead of the method's choice; null:
  /// the method chooses. Errors: kUsage (an id outside the vocabulary, too long for the context), kResource,
  /// kUnsupported.
  static Expected<std::unique_ptr<Sequence>> start(const AnswerHost& host, const std::vector<TokenId>& prompt,
                                                   const ResolvedOptions& resolved, const Given& given = {},
                                                   const CommitSchedule* replay = nullptr);

  /// The block of the model's prefixes (PrefixStore); nullopt: its rows depend on later tokens.
  static std::optional<Position> prefix_block(const ModelDesc& desc);
  /// Takes rows of the prompt from the store. Called before the first prepare(). Nothing happens if the method would
  /// not use them, or has a second cache whose rows must be the same.
  void read_prefix(PrefixStore& store);
  /// Gives the store what is final by now. `backend`: the one of start().
  void keep_prefix(PrefixStore& store, Backend& backend) const;

  /// See Denoiser::prepare() and Refiner::prepare(). Also empty once a stop text is final, or all tokens up to the
  /// bound. Uses the backend if another canvas follows. Errors: kResource.
  Expected<std::span<const SequenceStep>> prepare();
  /// See their absorb(). Records the step.
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  /// `with_canvas`: false leaves StepEvent::canvas empty, which is cheaper.
  StepEvent event(const DenoiseStep& step, bool with_canvas = true) const;
  DenoiseCounters counters() const;
  Position capacity() const { return cache_->capacity(); }  ///< K/V positions held, without those of guidance
  /// Positions of the canvases so far, at most the bound.
  Position answer_size() const { return std::min(size_, length_.most); }
  /// End of the final prefix of the answer, without the prompt.
  Position settled() const;
  Position decided() const { return answer_size() - std::min(answer_size(), canvas().masked_count()); }
  /// The result so far; the sequence must not be used afterwards. `cancelled`: the caller stopped it.
  Generation finish(bool cancelled, double seconds);

 private:
  Sequence(const AnswerHost& host, std::vector<TokenId> prompt, const AnswerLength& length)
      : host_(host), length_(length), begin_(static_cast<Position>(prompt.size())) {
    result_.prompt_ids = std::move(prompt);
  }
  static Expected<AnswerLength> checked(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                                        const ResolvedOptions& resolved, const Given& given);
  Expected<void> make_caches(Position capacity, Position kept);
  void hold_records(const Canvas& canvas);
  Expected<void> check_backend(const ModelDesc& desc, const ResolvedOptions& resolved) const;
  Expected<void> begin_loop(Canvas canvas, const CommitSchedule* replay);
  bool is_cut() const;
  bool goes_on() const;
  Position next_length() const;
  Position next_capacity() const;
  Expected<void> go_on();
  bool shares_prefix() const;
  Position finished_rows() const;
  Position final_rows() const;
  void move_record(const Edit& edit);
  void show_canvas(const DenoiseStep& step, StepEvent& event) const;
  Position answer_end() const;
  std::string text(Position end, bool complete) const;
  std::vector<std::string> slot_texts() const;
  struct StopText {
    std::size_t at = 0;  ///< byte of the answer's text
    Position end = 0;    ///< after the token that completes it
    const std::string* text = nullptr;
  };
  /// The first of the request's stop texts in the answer's tokens up to `end`.
  std::optional<StopText> find_stop_text(Position end) const;

  const AnswerHost host_;
  ConstraintPtr constraint_;
  AnswerLength length_;
  const Position begin_;  ///< of the answer
  Position size_ = 0;     ///< of the canvases so far, without text given after the answer
  std::unique_ptr<KvCache> cache_, unconditional_, side_;
  std::vector<std::unique_ptr<KvCache>> branches_;  ///< of cache_, for decoders that have passes on branches
  /// Masks are filled, canvases refined, or one of several modes runs: the loops have the same calls.
  using Loop = std::variant<std::unique_ptr<Denoiser>, std::unique_ptr<Refiner>, std::unique_ptr<ModeLoop>,
                            std::unique_ptr<SlotLoop>>;
  template <class F>
  auto in_loop(F call) const {
    return std::visit([&call](const auto& loop) { return call(*loop); }, loop_);
  }
  const Canvas& canvas() const;
  std::optional<Position> stop_position() const;

  Loop loop_;
  std::vector<std::string> stop_texts_;
  bool stopped_ = false;               ///< by a stop text
  std::vector<TokenId> form_, shown_;  ///< see Given
  std::shared_ptr<const PromptImages> images_;
  Position cached_ = 0;  ///< positions of the prompt from the store
  // Of earlier canvases.
  bool extended_ = false;  ///< there were some
  DenoiseCounters before_;
  std::optional<Position> earlier_stop_;  ///< under --exact-length
  std::int32_t pass_ = 0;                 ///< index of the forward pass being made (the first of a guided pair)
  Generation result_;
};

/// Adds one sequence's steps to a batch; guidance steps get indices into the batch.
void append_steps(std::vector<SequenceStep>& batch, std::span<const SequenceStep> steps);

}  // namespace dllm
