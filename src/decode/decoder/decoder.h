#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/latency_table.h"
#include "backend/scores.h"
#include "backend/step_plan.h"
#include "backend/unrolling.h"
#include "decode/canvas.h"

namespace dllm {

/// A position of the window with its prediction; masked, unless the decoder wanted other positions too.
struct Candidate {
  Position position = 0;
  TokenId token = -1;
  double confidence = 0;
  double log_odds = 0;  ///< ranks confidences that round to 1
  double margin = 0;
  double entropy = 0;
  /// Whether the prediction may be committed. False where the model's prediction is the mask token (LLaDA does this):
  /// such a position waits, and only the progress rule may commit its best other token.
  bool eligible = true;
  float logit = 0;                      ///< of `token`
  std::span<const float> queried = {};  ///< logits that queries() named for this position, in that order
  std::span<const TopToken> top = {};   ///< the best tokens, if configure() wants them, before token rules
  std::span<const float> logits = {};   ///< of all tokens, if configure() wants them
};

/// The probability of another token of the position by its logit, from the same softmax as the candidate's own.
double probability_of(const Candidate& candidate, float logit);
/// The same of the token of `candidate.queried[index]`.
double probability_of_queried(const Candidate& candidate, std::size_t index = 0);

/// A logit wanted in addition to the prediction.
struct TokenQuery {
  Position position = 0;
  TokenId token = 0;
};

/// A position that the model reads as a mixture of tokens.
struct SoftToken {
  Position position = 0;
  std::vector<MixedToken> tokens;  ///< see RowMixture::instead
};

/// The state of a sequence; the same for every decoder.
struct DecodeContext {
  const Canvas& canvas;
  PositionRange window;
  std::int32_t window_step = 0;        ///< steps made in this window
  Position window_masks_at_start = 0;  ///< masks of the window at its first step
  std::uint32_t step = 0;              ///< steps made in the sequence; keys random draws
  RngKey rng;
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine; nullptr: unknown
  double least_threshold = 0;             ///< lower thresholds are raised to it (IterSmooth's cautious first passes)
  /// In decode(): what the states of variants() predict at their masks of the window, ascending. In their order.
  std::span<const std::vector<Candidate>> variants{};
  /// In decode(): what shadow rows predicted at shadowed() positions. `queried` has the logit of the canvas's token.
  std::span<const Candidate> shadows{};
  /// K and V of the sequence: from which token and in which pass each row was computed. nullptr: there is none.
  const KvCache* cache = nullptr;
  /// In decode() and checked(): what was asked of the candidates. nullptr: unknown.
  const ScoreRequest* request = nullptr;

  /// The state `passes` steps later, in the same window, once the canvas is `later`: what those passes predict, and
  /// the cache after them, nobody knows yet. Borrows the canvas.
  DecodeContext after(const Canvas& later, std::int32_t passes) const {
    return {.canvas = later,
            .window = window,
            .window_step = window_step + passes,
            .window_masks_at_start = window_masks_at_start,
            .step = step + static_cast<std::uint32_t>(passes),
            .rng = rng,
            .latency = latency,
            .least_threshold = least_threshold};
  }
};

/// Passes since K and V of the position were computed: 0 in the last one. -1: never, or there is no cache.
std::int32_t kv_age(const KvCache* cache, Position position);

/// The prediction at a position, or that of a shadow row there; nullptr: there is none.
const Candidate* candidate_at(const DecodeContext& context, std::span<const Candidate> candidates, Position position);

class Reviser;

/// Reads predictions and decides edits (dInfer: decoder). One object per sequence; it may keep state between steps.
/// What is asked of a decoder before there is one, its declaration says (MethodTraits).
class Decoder {
 public:
  virtual ~Decoder() = default;

  /// Sets what the predictions must contain (temperature, distribution, ...). Called once per sequence.
  virtual void configure(ScoreRequest& request) const { (void)request; }

  /// The positions whose predictions are wanted now, ascending, none after the window. Default: every masked position
  /// of the window. Empty: this step decides nothing, and the loop continues without a forward pass.
  virtual std::vector<Position> wanted(const DecodeContext& context);

  /// Additional logits at wanted positions, by ascending position. Called once after wanted(), before the forward pass.
  virtual std::vector<TokenQuery> queries(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// Committed positions that are predicted a second time in this pass, ascending, each by a shadow row that does not
  /// see its token (StepPlan::shadows), while all others do. Called once after wanted(). A decoder that asks declares
  /// `shadows` (MethodTraits).
  virtual std::vector<Position> shadowed(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// Other states of the window that the coming pass forwards too, each on a branch of the cache: what they would
  /// change in the canvas, in positions of the window that are not the prompt's. decode() gets their predictions. Each
  /// has the rows of a pass. Called once after wanted(); a decoder that names some declares how many at most
  /// (MethodTraits::branches), and names no guesses().
  virtual std::vector<std::vector<Edit>> variants(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// What the coming pass and those after it may decide: commits of masks of the window, pass by pass. The loop
  /// forwards the states that would follow together with the coming pass, each on a branch of the cache, and uses a
  /// result only if the loop gets to that very state. So guesses cost rows and save passes, and change no token. Called
  /// before each pass whose results would be used; a decoder that names some declares how many (MethodTraits).
  virtual std::vector<std::vector<Edit>> guesses(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// Predictions of neighbouring masks of the window, its first mask first, that are checked before they are committed.
  /// Instead of an ordinary pass the loop then makes one in which each of them is predicted from what is before it
  /// alone, drafts among it, as by the model with blocks of one position, and calls checked(). Empty: an ordinary pass.
  /// A decoder that names some declares how many at most (MethodTraits::checks).
  virtual std::vector<Edit> drafts(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// Commits after such a pass, from the first draft on. `candidates`: the drafts' positions, each with the logit of
  /// its draft in `queried`; then perhaps the next position, predicted after all of them.
  virtual std::vector<Edit> checked(const DecodeContext& context, std::span<const Candidate> candidates) {
    (void)context, (void)candidates;
    return {};
  }

  /// Committed positions of the window that the coming pass reads as mixtures, ascending. K and V of such a row are
  /// not kept after the pass. Called once after wanted(); a decoder that names some declares `soft` (MethodTraits).
  virtual std::vector<SoftToken> soft_tokens(const DecodeContext& context) {
    (void)context;
    return {};
  }

  /// Edits for this step. `candidates` are the wanted positions, ascending.
  virtual std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) = 0;

  /// What decode() commits in the coming pass and in up to `passes` - 1 after it in the same window, for backends that
  /// run passes in a row: `threshold` and `tie`, or `counts`. Nothing: only decode() knows.
  virtual std::optional<CommitRule> rule(const DecodeContext& context, std::int32_t passes) const {
    (void)context, (void)passes;
    return std::nullopt;
  }

  /// Instead of decode(), for a pass that decides nothing.
  virtual void skip_pass() {}

  /// True if a step without edits is part of a schedule that ends by itself; otherwise the loop's progress rule commits
  /// the best position.
  virtual bool keeps_schedule() const { return false; }

  /// True if tokens of the window may still be revised or masked again, so that none of them is final before the window
  /// is finished. Needs a model with a mask token.
  virtual bool revises() const { return false; }

  /// Called when the window has no mask left: true if it needs another pass anyway.
  virtual bool holds_window(const DecodeContext& context) const {
    (void)context;
    return false;
  }

  /// The first position whose token may still change; called for decoders that revise and have no Reviser. `open`: the
  /// window has a mask, or is held. Default: the window's start while it is open, then the canvas's end.
  virtual Position revisable_from(const DecodeContext& context, bool open) const {
    return open ? context.window.begin : context.canvas.size();
  }

  /// For decoders that review tokens before the window; nullptr: this one does not.
  virtual Reviser* reviser() { return nullptr; }

  /// True if the decoder repeats a recorded answer: drafts are then accepted where it commits them.
  virtual bool replays() const { return false; }
};

/// The `count` best eligible candidates as commits: descending `key`, ties by lower position. `key` is called once per
/// candidate.
std::vector<Edit> commit_best(std::span<const Candidate> candidates, std::size_t count,
                              const std::function<double(const Candidate&)>& key);

/// Tokens to commit in each of `steps` steps (LLaDA's num_transfer_tokens): masks/steps, the remainder first.
std::vector<std::int32_t> transfer_schedule(std::int32_t masks, std::int32_t steps);

/// Steps of one window if `steps` are spread over an answer of `length`: at least 1, at most the window's masks.
std::int32_t window_steps(std::int32_t steps, Position length, Position window_masks);

Edit commit(const Candidate& candidate);

/// Some schedules of upstream end with masks left (--compat): candidates without a commit, or with one of the mask,
/// stay masks.
void leave_the_rest(const Canvas& canvas, std::span<const Candidate> candidates, std::vector<Edit>& edits);

/// The window's positions after the prompt, masked or not.
std::vector<Position> generated_positions(const DecodeContext& context);

}  // namespace dllm
