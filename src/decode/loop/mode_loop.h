#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "decode/decoder/replay_decoder.h"
#include "decode/loop/denoise_pass.h"
#include "decode/loop/denoise_step.h"
#include "decode/loop/stop_rule.h"
#include "decode/mode/mode.h"
#include "decode/window/draft_window.h"
#include "dllm/error.h"
#include "dllm/options.h"

namespace dllm {

struct ModeLoopOptions {
  ModeConfig mode;
  Position block_length = 32;  ///< of the mode `diffusion`
  bool exact_length = false;
  std::vector<TokenId> stop_ids;
  Sampling sampling{};
  std::vector<LogitAdjustments::Token> biased{};  ///< ascending
  RngKey rng;
  bool suppress_eos = false;
  const LatencyTable* latency = nullptr;  ///< borrowed
  /// Which pass commits what, instead of predictions: drafts are made and verified, and the schedule says how many of
  /// their tokens hold. A draft must be one pass.
  std::optional<CommitSchedule> replay;
};

/// The loop of models that were trained for several ways of decoding (Nemotron-Labs-Diffusion), in the manner of
/// Denoiser: prepare() says what to forward, absorb() reads the scores.
///
/// Everything finished is in the cache as a causal pass left it, and the token after it is known: the causal prediction
/// of the last finished position. From there
///  - `ar` forwards that one token, which predicts the next;
///  - `diffusion` fills a block of masks after it, which see themselves in both directions, with a decoder that
///    chooses what each pass commits, and forwards the finished block once more, causally; drafts of the decoder
///    (Decoder::drafts()) are forwarded causally too, and what is right of them is finished then;
///  - `self-speculation` lets such passes draft a block, and forwards the draft causally: the predictions of that pass
///    are ar's own as far as the draft agrees with them, and so is the first one after it. They are appended, and the
///    rows of the others are forgotten. Of introspective models (I-DLM) such a pass also makes the next draft: masks
///    follow the draft that it verifies, and what they predict is used if all of that draft was right.
///
/// Self-speculation appends what ar would, token for token: a row's result does not depend on the other rows of its
/// pass, and causal draws are keyed by seed and position alone. Drafts draw with the noise of the position that they
/// draft, so a draft with ar's distribution is ar's draw.
class ModeLoop {
 public:
  /// `decoder` is given iff the mode is diffusion. The cache must hold the canvas, whose prompt must not be empty.
  ModeLoop(const ModelDesc& desc, Canvas canvas, std::unique_ptr<Decoder> decoder, ModeLoopOptions options,
           KvCache& cache);

  /// The next forward pass; empty when the sequence is finished. Valid until absorb().
  std::span<const SequenceStep> prepare();
  /// `scores`: of prepare()'s step. Errors: logits that are not numbers (kInvalidFile).
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  const Canvas& canvas() const { return canvas_; }
  const DenoiseCounters& counters() const { return counters_; }
  /// End of the answer's decided prefix.
  Position settled() const { return canvas_.first_masked(canvas_.prompt_end()); }
  std::optional<Position> stop_position() const { return stop_; }
  /// See Refiner::read().
  Position read() const { return read_; }

 private:
  bool finished() const;
  /// Whether a drafter makes the drafts: the backend has one beside the model.
  bool drafts_by_other() const;
  /// Of the pass being absorbed, from 0.
  std::int32_t pass_index() const { return counters_.nfe - 1; }
  void begin_block();
  bool wants_draft();
  bool wants_check();
  DecodeContext context() const;
  StepPlan causal_plan() const;
  Position unread_prompt() const;
  bool drafts_inside() const;
  void make_drafts(std::span<const RowScore> masks);
  StepPlan draft_plan() const;
  ScoreRequest causal_request() const;
  ScoreRequest draft_request() const;
  Expected<void> append(std::span<const RowScore> rows, DenoiseStep& step);
  Expected<void> draft(std::span<const RowScore> rows);
  void cut(std::span<const RowScore> rows);
  Expected<void> decide(const Scores& scores, DenoiseStep& step);
  StepPlan check_plan() const;
  ScoreRequest check_request() const;
  Expected<void> read_check(const Scores& scores, DenoiseStep& step);

  const ModelDesc& desc_;
  Canvas canvas_;
  std::unique_ptr<Decoder> decoder_;
  const ModeLoopOptions options_;
  const StopRule stop_rule_;
  KvCache& cache_;
  DraftWindow window_;
  std::optional<ScheduledCommits> replay_;

  Position read_ = 0;           ///< positions before it are in the cache as causal passes left them
  PositionRange block_{0, 0};   ///< rows of the present round or block; empty: none has begun
  std::vector<TokenId> draft_;  ///< tokens of the block, the mask where nothing is drafted
  Position masks_ = 0;          ///< rows behind the block that make the next draft in the same pass
  std::vector<TokenId> made_;   ///< what they predicted, for the positions behind the token at read_
  bool drafting_ = false;       ///< the present pass sees its block in both directions
  DenoisePass pass_;            ///< what it predicts, if so, or if it reads the decoder's drafts
  std::vector<Edit> checked_;   ///< these drafts; empty: it reads none
  std::int32_t block_step_ = 0;
  Position block_masks_ = 0;
  std::vector<SequenceStep> prepared_;
  DenoiseCounters counters_;
  std::optional<Position> stop_;
};

}  // namespace dllm
