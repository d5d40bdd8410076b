#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/scores.h"
#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/denoise_step.h"
#include "dllm/error.h"

namespace dllm {

/// What a forward pass must compute, and where its results are.
struct DenoisePass {
  static constexpr std::int32_t kKept = -1;  ///< in score_of_wanted: not from this pass (KeptFront)

  bool draining = false;                      ///< reviews an answer without masks once more
  bool fills = false;                         ///< see CacheDecision::fills
  bool idle = false;                          ///< decides nothing; see Denoiser::send_idle
  bool checks = false;                        ///< reads a decoder's drafts; see check_steps()
  std::vector<Position> wanted;               ///< ascending: the decoder's, then drafts after the window
  std::size_t decided = 0;                    ///< how many of them are the decoder's
  std::vector<TokenQuery> queries;            ///< by ascending position
  std::vector<std::int32_t> score_of_wanted;  ///< index into Scores::rows, as two positions may share a row
  std::vector<Position> shadowed;             ///< ascending: predicted by shadow rows
  std::vector<std::int32_t> score_of_shadow;  ///< index into Scores::rows
  /// Masks that are scored for their expectation only, in the same form (IterSmooth under --compat).
  std::vector<std::pair<Position, std::int32_t>> also_scored;

  /// The decoder's positions.
  std::span<const Position> asked() const { return std::span(wanted).first(decided); }
  bool front_kept() const { return !score_of_wanted.empty() && score_of_wanted.front() == kKept; }
  /// The scored row of a wanted position. Precondition: the position is wanted.
  std::int32_t score_of(Position position) const;
};

/// The list of likeliest tokens of a scored row; empty if the pass computes none.
std::span<const TopToken> top_of(const Scores& scores, std::size_t row);

/// A prediction as decoders see it. Borrows the spans.
Candidate candidate_of(Position position, const RowScore& row, std::span<const float> queried,
                       std::span<const TopToken> top, std::span<const float> logits);
/// ... of a scored row, with its list and its logits.
Candidate candidate_of(Position position, const Scores& scores, std::size_t row, std::span<const float> queried);

/// The progress rule: commits the candidate at a masked position whose predicted token is the surest one. False: no
/// candidate predicts a token, other than the mask.
bool force_progress(std::span<const Candidate> candidates, Canvas& canvas, DenoiseStep& step,
                    DenoiseCounters& counters);

/// The error for a prediction that is no number. `pass`: how many were made before.
Error not_a_number(Position position, std::int64_t pass);

}  // namespace dllm
