#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/step_plan.h"
#include "base/rng.h"
#include "constrain/best_path.h"
#include "constrain/path_draw.h"
#include "constrain/token_automaton.h"
#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/denoise_pass.h"
#include "dllm/error.h"

namespace dllm {

/// What an answer must spell.
struct ConstraintConfig {
  std::shared_ptr<const constrain::TokenAutomaton> automaton{};  ///< null: anything
  /// Tokens that the answer may take, also on canvases after this one; text given after it is not part.
  Position length = 0;
};

/// Keeps an answer within a language. In each pass it finds the most probable completion of the canvas that the
/// automaton accepts, or draws one if the temperature is above 0, and the decoder sees its tokens instead of the
/// likeliest or drawn ones. Every subset of these that the decoder commits can be completed, by the others if nothing
/// better is found, so that the order of commits is free and no pass leads into a dead end.
///
/// Where the decoder also reviews decided tokens, it sees those of the most probable answer, or of a drawn one, that
/// has this completion at its masks. All of them together are accepted, but some without the others may not be: keep()
/// leaves revisions out until the rest is. A token that becomes a mask again only leaves more room.
///
/// Needs decoders that write nothing but their candidates' tokens (see MethodTraits::commits_other), and counts every
/// token in the softmax.
class ConstraintGuide {
 public:
  explicit ConstraintGuide(const ConstraintConfig& config)
      : config_(config),
        finder_(config_.automaton ? std::make_unique<constrain::PathFinder>(*config_.automaton) : nullptr) {}

  bool on() const { return finder_ != nullptr; }
  /// Asks for the pass's logits, and takes the drawing over: the backend only describes the rows.
  void configure(ScoreRequest& request);

  /// Puts the tokens of the completion into a pass's candidates, with their probabilities. Their entropy
  /// and margin tell how sure the model is of them: a token that is not the likeliest has a negative margin, and at
  /// least the entropy -ln p. Errors: kUnsupported (the backend returns no logits), kInvalidFile (logits that are not
  /// numbers), kMismatch (given tokens of the answer admit no completion).
  Expected<void> apply(const Canvas& canvas, const DenoisePass& pass, const Scores& scores,
                       std::vector<Candidate>& candidates);

  /// The same of candidates with their rows of logits, of all tokens.
  Expected<void> apply(const Canvas& canvas, std::span<const std::span<const float>> rows,
                       std::vector<Candidate>& candidates);

  /// The decoder's edits without the revisions that the answer cannot have, the least confident ones first: whatever
  /// else of this pass's candidates is committed to masks then fits. Call after apply(), before the canvas changes.
  std::vector<Edit> keep(const Canvas& canvas, std::vector<Edit> edits);

 private:
  /// How the pass's tokens are drawn.
  struct Drawing {
    Sampling options;
    RngKey rng;
    std::uint32_t step = 0;
  };
  /// Tokens of the slots with a row; `weights`: of the rows, if nothing is drawn. nullopt: there is no completion.
  std::optional<std::vector<TokenId>> complete(std::span<const constrain::Slot> slots,
                                               std::span<const std::span<const float>> rows,
                                               const constrain::ClassWeights& weights, Position begin,
                                               std::int32_t after);

  const ConstraintConfig config_;
  std::unique_ptr<constrain::PathFinder> finder_;
  std::optional<Drawing> drawing_;  ///< of the pass; absent: at temperature 0
  double beta_ = 1;                 ///< inverse temperature of the candidates' probabilities
  /// By position of the answer: decided tokens, and the completion at this pass's masks.
  std::vector<constrain::Slot> completed_{};
};

}  // namespace dllm
