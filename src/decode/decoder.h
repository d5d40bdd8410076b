#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/latency_table.h"
#include "backend/scores.h"
#include "backend/step_plan.h"
#include "decode/canvas.h"

namespace dllm {

/// A position of the window with its prediction; masked, unless the decoder wanted others too.
struct Candidate {
  Position position = 0;
  TokenId token = -1;
  double confidence = 0;
  double log_odds = 0;  ///< ranks confidences that round to 1
  double margin = 0;
  double entropy = 0;
  /// The prediction may be committed. False where the model would rather predict the mask token (LLaDA does): such a
  /// position waits, and only the progress rule may take its best other token.
  bool eligible = true;
  float logit = 0;                      ///< of `token`
  std::span<const float> queried = {};  ///< the logits that queries() asked for at this position, in that order
  std::span<const TopToken> top = {};   ///< the best tokens, if configure() asked for them; rules are not applied here
};

/// A logit wanted beside the prediction.
struct TokenQuery {
  Position position = 0;
  TokenId token = 0;
};

/// Where a sequence stands; the same for every decoder.
struct DecodeContext {
  const Canvas& canvas;
  PositionRange window;
  std::int32_t window_step = 0;        ///< steps made in this window
  Position window_masks_at_start = 0;  ///< masks of the window at its first step
  std::uint32_t step = 0;              ///< steps made in the sequence; keys random draws
  RngKey rng;
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine; nullptr: unknown
  double least_threshold = 0;             ///< thresholds below it count as it (IterSmooth's cautious first passes)
};

/// Reads predictions, decides edits (dInfer: decoder). One object per sequence; it may keep state between steps.
class Decoder {
 public:
  virtual ~Decoder() = default;

  /// What the predictions must contain (temperature, distribution, ...). Called once per sequence.
  virtual void configure(ScoreRequest& request) const { (void)request; }

  /// The positions whose predictions are wanted now, ascending, none behind the window. Default: every masked position
  /// of the window. An empty answer means that this step decides nothing: the loop goes on without a forward pass.
  virtual std::vector<Position> wanted(const DecodeContext& context);

  /// Further logits at wanted positions, by ascending position. Called once after wanted(), before the forward pass.
  virtual std::vector<TokenQuery> queries(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// Edits for this step. `candidates` are the wanted positions, ascending.
  virtual std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) = 0;

  /// True if a step without edits belongs to a schedule that ends by itself; otherwise the loop's progress rule
  /// commits the best position.
  virtual bool keeps_schedule() const { return false; }

  /// True if tokens of the window may still be revised or masked again: nothing of it counts as decided before the
  /// window is finished. Needs a model with a mask token.
  virtual bool revises() const { return false; }

  /// Asked when the window has no mask left: true if it wants another pass all the same.
  virtual bool holds_window(const DecodeContext& context) const {
    (void)context;
    return false;
  }

  /// The first position whose token this decoder may still change, asked of decoders that revise. Default: the begin of
  /// an unfinished window.
  virtual Position revisable_from(const DecodeContext& context) const;

  /// What is looked at beside the dense pass of this step, on the second path. Asked when nothing runs there.
  struct Refresh {
    std::vector<Position> positions;  ///< ascending, in front of the window, not among wanted()
    bool left_out = false;            ///< their rows show the mask
    bool sees_window = true;          ///< they see everything; false: what is in front of the window only
  };
  virtual Refresh refresh(const DecodeContext& context) {
    (void)context;
    return {};
  }
  /// Edits from what the second path saw; `queried` of a candidate is the logit of its token. Of positions whose token
  /// has changed since, nothing is heard.
  virtual std::vector<Edit> merge(const DecodeContext& context, std::span<const Candidate> candidates) {
    (void)context, (void)candidates;
    return {};
  }

  /// The answer [prompt, end) has no mask left. Positions that want another look before it is accepted; empty: none.
  /// Asked before each further pass, of decoders with drains().
  virtual std::vector<Position> drain(const DecodeContext& context, Position end) {
    (void)context, (void)end;
    return {};
  }
  virtual bool drains() const { return false; }

  /// The token that the model reads at a wanted position in the next pass; nullopt: the canvas's.
  virtual std::optional<TokenId> shown(Position position) const {
    (void)position;
    return std::nullopt;
  }

  /// True if the decoder is defined for arg-max predictions only (temperature 0).
  virtual bool greedy() const { return false; }
};

/// Which visible tokens behind the window are looked at first (dllm-reference D.7 A10).
enum class RefreshOrder {
  kStale,     ///< changed ones, then the longest unseen, then the least sure
  kUnsure,    ///< the least sure
  kPosition,  ///< the first
};

/// Parameters of all decoders; each reads its own.
struct DecoderConfig {
  std::int32_t steps = 0;  ///< over the whole answer
  Position length = 0;     ///< generated positions
  double threshold = 0.9;
  double factor = 1.0;
  double eps = 1e-3;
  double algorithm_temperature = 0;
  double low_threshold = 0.4;      ///< hierarchical
  double remask_threshold = 0.4;   ///< hierarchical-remask
  double entropy_bound = 0.35;     ///< entropy-bound, nats
  double entropy_threshold = 1.5;  ///< entropy-exit, nats
  bool cosine = true;              ///< entropy-exit: cosine instead of linear schedule
  double credit_alpha = 0.7;
  double credit_beta = 0.8;
  double credit_gamma = 0.2;
  double edit_threshold = 0.5;       ///< draft-edit, levenshtein
  std::int32_t max_post_steps = 16;  ///< draft-edit, levenshtein
  TokenId delete_token = -1;         ///< levenshtein: predicted where a position is to go; -1: none
  TokenId insert_token = -1;         ///< levenshtein: predicted where a mask is to appear in front; -1: none
  double visible_threshold = 0.7;    ///< revision: from here on a token is shown, and looked at again
  double stable_threshold = 0.9;     ///< revision: from here on it is final
  std::int32_t refresh_rows = 8;     ///< revision: visible tokens behind the window looked at per pass
  std::int32_t max_revisions = 3;    ///< revision: of one position
  std::int32_t drain_rounds = 2;     ///< revision: passes over what is visible when no mask is left
  double revise_threshold = 0;  ///< revision: a token gives way to a likelier one from here on; 0: visible_threshold
  RefreshOrder refresh_order = RefreshOrder::kStale;  ///< revision: who is looked at first behind the window
  bool force_stable = false;                          ///< revision: what is promoted for want of better is final (A6)
  bool second_path = false;         ///< revision: what is behind the window is looked at on the second path
  bool refresh_sees_window = true;  ///< revision: and sees the window there (A15)
  std::int32_t drain_rows = 0;      ///< revision: looked at in one of them; 0: all
  bool reopen = false;              ///< revision: a change makes final tokens given after it visible again
  bool leave_one_out = false;       ///< revision: looks behind the window show the mask
  bool remask_visible = false;      ///< revision: visible tokens of the window below remask_threshold are masked again
  bool compat = false;
};

/// The `count` best eligible candidates as commits: descending `key`, ties by lower position. `key` is called once per
/// candidate.
template <class Key>
std::vector<Edit> commit_best(std::span<const Candidate> candidates, std::size_t count, Key key);

/// Tokens to commit in each of `steps` steps (LLaDA's num_transfer_tokens): masks/steps, the remainder first.
std::vector<std::int32_t> transfer_schedule(std::int32_t masks, std::int32_t steps);

/// Steps of one window when `steps` are spread over an answer of `length`: at least 1, at most the window's masks.
std::int32_t window_steps(std::int32_t steps, Position length, Position window_masks);

Edit commit(const Candidate& candidate);

/// The window's positions behind the prompt, masked or not.
std::vector<Position> generated_positions(const DecodeContext& context);

}  // namespace dllm

#include "decode/decoder-inl.h"
