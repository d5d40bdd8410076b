#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/unrolling.h"
#include "decode/cache/cache_policy.h"
#include "decode/cache/kept_front.h"
#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/constraint_guide.h"
#include "decode/loop/denoise_options.h"
#include "decode/loop/denoise_pass.h"
#include "decode/loop/denoise_step.h"
#include "decode/loop/guesses.h"
#include "decode/loop/pass_history.h"
#include "decode/loop/pass_planner.h"
#include "decode/loop/pass_recorder.h"
#include "decode/loop/refresh_path.h"
#include "decode/loop/stop_rule.h"
#include "decode/window/answer_growth.h"
#include "decode/window/drafts.h"
#include "decode/window/window_cursor.h"
#include "dllm/error.h"

namespace dllm {

/// The three parts of a method.
struct Method {
  std::unique_ptr<Window> window;
  std::unique_ptr<CachePolicy> cache;
  std::unique_ptr<Decoder> decoder;
};

/// The denoising loop of one sequence as a state machine, so that an engine may run the steps of many sequences in one
/// batch: prepare() says what to forward, absorb() reads the scores and edits the canvas.
///
/// Progress is guaranteed here: if the decoder commits nothing after a forward pass, the most confident masked position
/// of the window is committed, unless the decoder runs its own schedule. "Commits nothing" means that the window has as
/// many masks as before: decoders may also revise or mask again.
///
/// The parts: WindowCursor tracks the window and step, PassPlanner makes the plan, the decoder reads the predictions.
/// KeptFront, Drafts, SoftMasks, ConstraintGuide, RefreshPath, AnswerGrowth, PassRecorder and Guesses do nothing unless
/// an option enables them. The cache of a backend that runs passes in a row is told what the coming ones commit.
class Denoiser {
 public:
  /// `unconditional` is given iff options.cfg_scale != 0. The caches must hold the canvas.
  Denoiser(const ModelDesc& desc, Canvas canvas, Method method, DenoiseOptions options, KvCache& cache,
           KvCache* unconditional);

  /// The sequence steps of the next forward pass: one, or two under guidance (the second belongs to the first), then
  /// those of the decoder's variants, or else of guessed passes, on branches; empty when the sequence is finished.
  /// Valid until absorb().
  std::span<const SequenceStep> prepare();

  /// `scores`: of prepare()'s steps. Several steps of the sequence, if guesses were right. Errors: logits that are not
  /// numbers (kInvalidFile).
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  const Canvas& canvas() const { return canvas_; }
  const DenoiseCounters& counters() const { return counters_; }
  /// End of the final prefix of the answer: no mask in it, and no window that may still be revised.
  Position settled() const;
  /// Position of the first stop token with nothing undecided before it; nullopt if there is none.
  std::optional<Position> stop_position() const { return stop_; }

 private:
  bool keeps_front() const;
  DecodeContext context() const;
  // prepare()
  void prepare_pass();
  void add_guesses();
  void add_variants();
  bool drain();
  bool advance_window();
  bool window_held() const;
  bool window_finished() const;
  bool send_check();
  void add_soft_tokens(StepPlan& plan);
  void add_drafts();
  void want_end();
  bool send_idle();
  void send(PositionRange window);
  StepPlan plan(PositionRange window);
  std::optional<CommitRule> commit_rule(bool first_of_unit) const;
  ScoreRequest request(const Canvas& canvas, const DenoisePass& pass, std::size_t scored, std::int32_t step);
  // absorb()
  Expected<DenoiseStep> absorb_one(std::span<const Scores> scores);
  Expected<DenoiseStep> absorb_pass(std::span<const Scores> scores);
  PositionRange cut_window(std::span<const Candidate> all);
  DenoiseStep absorb_measure(std::span<const Candidate> answer);
  DenoiseStep absorb_idle(const Scores& scores);
  Expected<DenoiseStep> absorb_check(std::span<const Scores> scores);
  void grow(std::span<const Candidate> all, DenoiseStep& step);
  Expected<void> decide(std::span<const Candidate> candidates, WindowFeedback& feedback, DenoiseStep& step);
  bool predicts_masks(std::span<const Candidate> candidates) const;
  void apply(std::span<const Edit> edits, DenoiseStep& step);
  Error not_a_number() const;

  const ModelDesc& desc_;
  const DenoiseOptions options_;
  const StopRule stop_rule_;
  const std::vector<TokenRule> rules_;  ///< of every request
  Canvas canvas_;
  KvCache& cache_;
  KvCache* unconditional_;
  UnrollingCache* const unrolling_;  ///< the same cache; nullptr: its backend makes one pass at a time
  std::unique_ptr<Decoder> decoder_;
  WindowCursor cursor_;
  PassPlanner planner_;
  KeptFront front_;
  Drafts drafts_;
  SoftMasks soft_masks_;
  ConstraintGuide guide_;
  RefreshPath refresh_;
  AnswerGrowth growth_;
  PassRecorder recorder_;
  PassHistory history_;
  Guesses guesses_;
  std::vector<Candidate> shadows_;  ///< of the pass that is being absorbed; borrows its scores

  std::vector<DenoisePass> variant_passes_;       ///< of the current pass; of a check, one per step
  std::vector<std::vector<Candidate>> variants_;  ///< of the pass that is being absorbed; borrows its scores

  DenoisePass pass_;                       ///< the current one
  std::vector<SequenceStep> prepared_;     ///< its steps
  const ScoreRequest* request_ = nullptr;  ///< of the pass that is being absorbed
  DenoiseCounters counters_;
  std::optional<Position> stop_;
  bool without_mask_ = false;  ///< compat: this pass may not predict the mask, otherwise nothing would ever change
  bool owes_idle_ = false;     ///< compat: the next pass decides nothing
  bool ready_ = false;         ///< prepared_ is the next pass already
};

}  // namespace dllm
