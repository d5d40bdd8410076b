#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "decode/canvas.h"
#include "decode/loop/denoise_step.h"
#include "decode/loop/mode_loop.h"
#include "decode/loop/stop_rule.h"
#include "dllm/error.h"

namespace dllm {

/// The loop of models that fill slots, runs of some positions, in any order (ReFusion, arXiv 2512.13586, Algorithm 1
/// and generate.py of its repository), in the manner of Denoiser: prepare() says what to forward, absorb() reads the
/// scores.
///
/// Within a block of the answer,
///  1. a pass over the masks of all open slots proposes tokens; the slots whose first token is surer than
///     `slot_threshold` are chosen, at least the surest;
///  2. a pass over their tokens, in order of position, predicts each from those in front of it. Tokens are right up to
///     the first whose probability is not above `token_threshold`; the first of a slot always is. Whole slots at the
///     front that are right are kept, with the K and V of this pass, and the others wait;
///  3. if there is none, the chosen slots are filled, each without a sight of the others: a pass predicts what is not
///     right yet from masks, and another one judges it as above, until every slot is right. One more token is right
///     after each of these pairs.
/// K and V of a slot stay as they were when it was filled, so a finished token sees those finished before it, wherever
/// they stand (StepPlan::lead), and of its own slot what is in front of it (StepPlan::apart).
///
/// A stop token ends the answer: slots behind it are dropped, those in front are still filled. (generate.py drops some
/// of these too if the token is found in the third kind of pass: it takes a place among the chosen slots for one among
/// the open ones.)
class SlotLoop {
 public:
  /// The cache must hold the canvas, whose prompt must not be empty.
  SlotLoop(const ModelDesc& desc, Canvas canvas, ModeLoopOptions options, KvCache& cache);

  /// The next forward pass; empty when the sequence is finished. Valid until absorb().
  std::span<const SequenceStep> prepare();
  /// `scores`: of prepare()'s step. Errors: logits that are not numbers (kInvalidFile).
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  const Canvas& canvas() const { return canvas_; }
  const DenoiseCounters& counters() const { return counters_; }
  /// End of the answer's decided prefix.
  Position settled() const { return canvas_.first_masked(canvas_.prompt_end()); }
  std::optional<Position> stop_position() const { return stop_; }
  /// Positions before it are in the cache as one causal pass would leave them: of the prompt at most.
  Position read() const { return read_; }

 private:
  enum class Pass { kPropose, kVerify, kFill, kJudge };
  struct Slot {
    PositionRange range;
    std::vector<TokenId> tokens;  ///< of its positions
    std::vector<double> sure;     ///< their probabilities, as last predicted
    Position right = 1;           ///< tokens from the left that stand

    bool whole() const { return right == range.size(); }
  };

  void begin_block();
  bool runs(const Slot& slot) const;
  bool stops(const Slot& slot, Position from) const;
  StepPlan plan() const;
  void add_tokens(const Slot& slot, StepPlan& plan, ScoreRequest& request) const;
  ScoreRequest request() const;
  Expected<void> propose(std::span<const RowScore> rows);
  void verify(const Scores& scores, DenoiseStep& step);
  Expected<void> fill(std::span<const RowScore> rows);
  void judge(const Scores& scores, DenoiseStep& step);
  void read_probabilities(const Scores& scores);
  void extend_right(Slot& slot) const;
  bool keep(const Slot& slot, DenoiseStep& step);
  void end_behind(const Slot& slot);
  void forget_open();

  const ModelDesc& desc_;
  Canvas canvas_;
  const ModeLoopOptions options_;
  const StopRule stop_rule_;
  KvCache& cache_;

  Pass pass_ = Pass::kPropose;
  Position read_ = 0;
  Position next_block_;              ///< where the next block begins
  std::vector<PositionRange> done_;  ///< positions whose K and V stay: sorted, disjoint
  std::vector<PositionRange> open_;  ///< slots of the block that are not filled
  std::vector<Slot> chosen_;
  Position from_ = 0;   ///< of the chosen slots: places before it are in the cache
  bool ended_ = false;  ///< by a stop token: no block follows
  std::vector<SequenceStep> prepared_;
  DenoiseCounters counters_;
  std::optional<Position> stop_;
};

}  // namespace dllm
