#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/logit_adjustments.h"
#include "base/rng.h"
#include "base/types.h"
#include "dllm/options.h"

namespace dllm {

/// One row of a step: the model reads `token` at `position`.
struct PlanRow {
  Position position = 0;
  TokenId token = 0;
  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

/// A token whose embedding is added to a row's, times `weight`.
struct MixedToken {
  TokenId token = 0;
  float weight = 0;
};

/// Additional input of a row: x = E[token] + sum of weight E[mixed token], in the given order. Models with
/// self-conditioning process the sum separately (EmbedPart::kMixture).
struct RowMixture {
  std::int32_t row = 0;  ///< index into StepPlan::rows
  std::vector<MixedToken> tokens;
  /// The mixture in place of the row's token: x = s sum of weight E[mixed token], s such that |x| is the sum of
  /// weight |E[mixed token]| (weights are not negative). Only for Backend::runs_soft_tokens().
  bool instead = false;
};

/// The input of a row in place of its token's embedding, which the model reads as it is: what a vision tower makes of a
/// part of an image. The cache records the row's token, which must therefore differ between images.
struct GivenEmbedding {
  std::int32_t row = 0;           ///< index into StepPlan::rows
  const float* values = nullptr;  ///< as wide as the model; borrowed until the pass has ended
};

/// A second row at a position: the model reads `row.token` there, but nobody sees it, as it stores no K/V. So one pass
/// can tell what the model would predict if a token were another, or a mask, while all other rows see the token as it
/// is.
struct ShadowRow {
  PlanRow row;
  /// What this row attends to, in place of StepPlan::visible, under the same causal_block: sorted, disjoint, not empty.
  /// Each position must be a row of this plan or already cached. `row.position` among them is the other row's K/V.
  std::vector<PositionRange> visible{};
};

/// Models with a causal reader of what is finished and a bidirectional reader of what is not in one network
/// (DiffusionGemma; drafts of models with several modes): which of the two a step runs. Others do not ask. A draft is a
/// block of one known token and masks for a drafter (DrafterDesc): only a backend that has one runs it.
enum class Region : std::uint8_t { kContext, kCanvas, kDraft };

/// One denoising step of one sequence, for any method: which positions run, what they see, which are predicted.
struct StepPlan {
  /// Strictly ascending positions, in any pattern. Each row's K/V replace the cached ones before attention.
  std::vector<PlanRow> rows;
  /// Positions that the rows may attend to: sorted, disjoint. Each must be a row of this plan or already cached.
  std::vector<PositionRange> visible;
  /// The kind of mask. 0: every row sees all of `visible`; B: row i sees the visible j with j/B <= i/B (1 = causal).
  /// Two plans over one cache may differ in it: a draft sees its block in both directions, its verification causally.
  std::int32_t causal_block = 0;
  /// Indices of row(), ascending: the rows whose predictions are wanted. No other row reaches the LM head.
  std::vector<std::int32_t> scored;
  std::vector<RowMixture> mixtures{};  ///< by ascending row; rows without one read only their token
  Region region = Region::kContext;    ///< of every row
  std::vector<float> hidden{};         ///< what op::HiddenIn reads, row by row; empty for graphs without one
  /// By ascending position; a plan with some has rows too. They change nothing in the results of `rows`. Experts that a
  /// block's rows share (op::Route::capacity) are chosen for shadow rows apart. Only for Backend::runs_shadows().
  std::vector<ShadowRow> shadows{};
  /// By ascending row, in models that read their tokens by EmbedPart::kRow or kToken. Only for
  /// Backend::takes_embeddings().
  std::vector<GivenEmbedding> given{};
  /// Of a plan with causal blocks of 1: positions of a range see each other in both directions, an image's. In layers
  /// with a window, each of them sees the range and what its own window shows. Sorted, disjoint; all rows from a
  /// range's first one in this plan to its end are in this plan.
  std::vector<PositionRange> groups{};
  std::int32_t columns = 0;  ///< of the grid that op::Rope::grid reads; 0: none
  /// Of a plan with causal blocks of 1, without `groups`: positions that come before all others, whatever their number
  /// (WeDLM's topological order, arXiv 2512.22737). Rows there see those of them up to themselves; every other row, a
  /// shadow row too, sees all of them, and of the rest what is up to its own position. Sorted, disjoint, part of
  /// `visible`. Only for Backend::runs_lead().
  std::vector<PositionRange> lead{};
  /// Beside `lead`: a row of one of these ranges sees, of what does not lead, only its own range (ReFusion's slots).
  /// Sorted, disjoint; every row that does not lead is in one. Empty: no such limit.
  std::vector<PositionRange> apart{};

  std::int64_t row_count() const { return static_cast<std::int64_t>(rows.size() + shadows.size()); }
  /// `rows`, then those of `shadows`.
  const PlanRow& row(std::int32_t index) const {
    const auto i = static_cast<std::size_t>(index);
    return i < rows.size() ? rows[i] : shadows[i - rows.size()].row;
  }
};

/// Special treatment of a token in the reduction of the logits.
struct TokenRule {
  TokenId token = 0;
  bool choose = true;  ///< false: never the prediction
  bool count = true;   ///< false: left out of the softmax, as if its logit were -inf (its own confidence is then 0)
  friend bool operator==(const TokenRule&, const TokenRule&) = default;
};

/// Which distribution confidence, margin and entropy describe.
enum class ScoreDistribution {
  kRaw,      ///< softmax of the (guided) logits at temperature 1: LLaDA, Fast-dLLM, dInfer
  kSampled,  ///< after temperature and the filters of sampling: Dream
};

/// One logit of a scored row.
struct LogitQuery {
  std::int32_t scored = 0;  ///< index into StepPlan::scored
  TokenId token = 0;
};

/// What a backend computes for each scored row of a sequence. The noise of draws is keyed by (rng, step, position,
/// token).
struct ScoreRequest : Sampling {
  ScoreRequest() = default;
  explicit ScoreRequest(const Sampling& sampling) : Sampling(sampling) {}

  ScoreDistribution distribution = ScoreDistribution::kRaw;
  RngKey rng;
  std::uint32_t step = 0;  ///< forward pass of the sequence, keys the draws
  /// Draws are keyed by the position of the row plus this: 1 where rows predict the next token, and that token shall
  /// have the noise that it would have if it were predicted in place.
  Position draw_ahead = 0;
  /// If given, the draws of a row at position p are keyed by p minus this instead of `step`: by the pass that would
  /// predict it, where one pass predicts one token after the other.
  std::optional<Position> steps_from;
  std::vector<TokenRule> rules;
  LogitAdjustments adjustments;     ///< before everything else: queries, lists and `logits` report adjusted logits
  std::vector<LogitQuery> queries;  ///< single logits to report, by ascending `scored`
  std::int32_t top_tokens = 0;      ///< report that many best tokens per row
  bool logits = false;              ///< report the logits: only then do rows x vocabulary floats exist
  bool hidden = false;              ///< report what the graph's op::HiddenOut hand out

  std::uint32_t step_at(Position position) const {
    return steps_from ? static_cast<std::uint32_t>(position - *steps_from) : step;
  }
};

/// Classifier-free guidance: the sequence `unconditional` of the same batch scores the same rows, and the logits that
/// are reduced are z = u + (scale + 1)(c - u) (the convention of LLaDA's reference sampler).
struct Guidance {
  std::int32_t unconditional = 0;  ///< index into the batch; that sequence's own Scores stay empty
  float scale = 0;
};

}  // namespace dllm
