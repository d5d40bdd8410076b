#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "constrain/best_path.h"
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
/// automaton accepts, and the decoder sees its tokens instead of the likeliest ones. Every subset of these that the
/// decoder commits can be completed, by the others if nothing better is found, so that the order of commits is free and
/// no pass leads into a dead end. Needs decoders that commit nothing but their candidates' tokens
/// (see MethodTraits::revises, commits_other), at temperature 0, and counts every token in the softmax.
class ConstraintGuide {
 public:
  explicit ConstraintGuide(const ConstraintConfig& config)
      : config_(config),
        finder_(config_.automaton ? std::make_unique<constrain::PathFinder>(*config_.automaton) : nullptr) {}

  bool on() const { return finder_ != nullptr; }
  void configure(ScoreRequest& request) const { request.logits = request.logits || on(); }

  /// Puts the tokens of the most probable completion into a pass's candidates, with their probabilities. Their entropy
  /// and margin tell how sure the model is of them: a token that is not the likeliest has a negative margin, and at
  /// least the entropy -ln p. Errors: kUnsupported (the backend returns no logits), kInvalidFile (logits that are not
  /// numbers), kMismatch (given tokens of the answer admit no completion).
  Expected<void> apply(const Canvas& canvas, const DenoisePass& pass, const Scores& scores,
                       std::vector<Candidate>& candidates);

 private:
  const ConstraintConfig config_;
  std::unique_ptr<constrain::PathFinder> finder_;
};

}  // namespace dllm
