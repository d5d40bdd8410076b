#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "decode/cache_policy.h"
#include "decode/canvas.h"
#include "decode/decoder.h"
#include "decode/drafts.h"
#include "decode/second_path.h"
#include "decode/soft_masks.h"
#include "decode/window.h"
#include "dllm/error.h"

namespace dllm {

/// The four parts of a method (the backend is the fourth), and what the loop itself needs.
struct Method {
  std::unique_ptr<Window> window;
  std::unique_ptr<CachePolicy> cache;
  std::unique_ptr<Decoder> decoder;
};

/// Which positions behind the window exist for the model. Masks there tell a fully bidirectional model how long the
/// answer may become; each costs a row where a policy forwards the suffix (dllm-reference D.7 A4).
enum class SuffixPolicy {
  kFull,  ///< all of the canvas
  kNear,  ///< the nearest `suffix_near`
  kNone,  ///< none: the canvas seems to end with the window
};

struct DenoiseOptions {
  bool exact_length = false;  ///< no stop at stop_ids
  std::vector<TokenId> stop_ids;
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  float cfg_scale = 0;
  RngKey rng;
  bool suppress_eos = false;
  bool defer_eos = false;
  bool compat = false;
  const LatencyTable* latency = nullptr;  ///< borrowed, for the policies to ask; nullptr: unknown
  SuffixPolicy suffix = SuffixPolicy::kFull;
  Position suffix_near = 32;
  DraftConfig drafts{};
  SmoothConfig smooth{};
  /// Shifted models: the settled row in front of the window, which predicts the window's first position, is not
  /// forwarded again after the window's first pass, whose prediction is kept (dllm-reference D.7 A21).
  bool keep_front = false;
  bool drain_full = false;    ///< passes that drain count as the first of a unit: caches make them full
  SecondPathConfig second{};  ///< for decoders that refresh(); not under guidance
};

/// What one step did.
struct DenoiseStep {
  PositionRange window;
  std::vector<Edit> edits;  ///< that changed the canvas, merges from the second path included
  bool forced = false;      ///< only the progress rule found something to commit
};

struct DenoiseCounters {
  std::int32_t steps = 0;
  std::int32_t nfe = 0;
  std::int32_t forced = 0;
  std::int32_t second_passes = 0;  ///< on the second path; not in nfe, their rows are below
  std::int64_t rows_forwarded = 0;
  std::int64_t rows_scored = 0;
};

/// The denoising loop of one sequence as a state machine, so that an engine may run the steps of many sequences in one
/// batch: prepare() tells what to forward, absorb() reads the scores and edits the canvas.
///
/// Progress is guaranteed here: every forward pass after which the decoder commits nothing commits the most confident
/// masked position of the window (dllm-reference B.9), unless the decoder runs a schedule of its own. "Commits nothing"
/// means that the window has as many masks as before: decoders may also revise or mask again.
class Denoiser {
 public:
  /// `unconditional` is given iff options.cfg_scale != 0. The caches must hold the canvas.
  Denoiser(const ModelDesc& desc, Canvas canvas, Method method, DenoiseOptions options, KvCache& cache,
           KvCache* unconditional);

  /// The sequence steps of the next forward pass (one, or two under guidance; the second belongs to the first);
  /// empty when the sequence is finished. Valid until absorb().
  std::span<const SequenceStep> prepare();

  /// `scores`: of prepare()'s steps. Errors: logits that are not numbers (kInvalidFile).
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  const Canvas& canvas() const { return canvas_; }
  const DenoiseCounters& counters() const { return counters_; }
  /// End of the answer's prefix that is final: no mask in it, and no window that may still be revised.
  Position settled() const;
  /// Position of the first stop token with nothing undecided before it; nullopt if there is none.
  std::optional<Position> stop_position() const { return stop_; }

 private:
  bool advance_window();
  bool window_held() const;
  bool drain();
  bool ending() const;
  void launch_second();
  SecondPath::Launch second_pass(const Decoder::Refresh& refresh) const;
  Expected<void> merge_second(std::vector<Edit>& edits);
  Position horizon() const;
  TokenId shown(Position position) const;
  std::vector<Position> plan_rows(const CacheDecision& decision, const std::vector<Position>& sources) const;
  std::vector<Position> draft_positions() const;
  bool force_progress(DenoiseStep& step, std::span<const Candidate> options);
  void apply(DenoiseStep& step, std::span<const Edit> edits);
  std::optional<Position> stop_candidate() const;
  void keep_expectations(const Scores& scores);
  StepPlan plan();
  bool front_serves() const;
  void keep_front(const Scores& scores);
  ScoreRequest request();
  std::vector<TokenRule> rules() const;
  std::vector<Candidate> candidates(const Scores& scores) const;
  DecodeContext context() const;
  Error not_a_number() const;
  void find_stop();

  const ModelDesc& desc_;
  Canvas canvas_;
  Method method_;
  DenoiseOptions options_;
  KvCache& cache_;
  KvCache* unconditional_;

  PositionRange window_{-1, -1};
  Position ahead_ = -1;        ///< end of the drafted positions behind the window
  Position unit_ = -1;         ///< WindowStep::unit of the window
  bool unit_changed_ = false;  ///< since the last plan
  bool draining_ = false;      ///< this pass looks once more at an answer without masks
  std::int32_t window_step_ = 0;
  Position window_masks_at_start_ = 0;
  std::vector<Position> wanted_;               ///< of the decoder, then drafts
  std::size_t decided_ = 0;                    ///< how many of them are the decoder's
  std::vector<std::int32_t> score_of_wanted_;  ///< index into Scores::rows, as two positions may share a row
  struct Front {
    RowScore score;
    std::vector<TopToken> top;
  };
  std::optional<Front> front_;  ///< the window's first position as predicted in front of it, for keep_front
  std::vector<TokenQuery> queries_;
  std::vector<SequenceStep> prepared_;
  Drafts drafts_;
  SoftMasks soft_masks_;
  DenoiseCounters counters_;
  std::optional<Position> stop_;
  std::vector<Edit> merged_;     ///< in front of the pass being made
  std::optional<Error> failed_;  ///< likewise
  SecondPath second_;
};

}  // namespace dllm
