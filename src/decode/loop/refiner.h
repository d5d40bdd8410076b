#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/prompt_images.h"
#include "decode/canvas.h"
#include "decode/loop/canvas_sampler.h"
#include "decode/loop/constraint_guide.h"
#include "decode/loop/denoise_step.h"
#include "dllm/error.h"

namespace dllm {

struct RefineOptions {
  CanvasDesc canvas;
  bool exact_length = false;  ///< no stop at stop_ids
  std::vector<TokenId> stop_ids;
  RngKey rng;
  std::shared_ptr<const PromptImages> images{};  ///< of the prompt; null: none
  ConstraintConfig constraint{};
};

/// The loop of models that refine canvases of random tokens instead of filling masks (DiffusionGemma), with Denoiser's
/// interface: prepare() says what to forward, absorb() reads the scores.
///
/// One canvas after the other, each of CanvasDesc::length positions; where canvases grow, each has as many as the
/// answer has so far, at least CanvasDesc::first and at most the length. A pass in the context region adds to the cache
/// what precedes the canvas and is not there yet (prompt, then the previous canvas). Passes in the canvas region then
/// predict all of its positions, which show what the sampler accepted and noise elsewhere, with the previous prediction
/// mixed in. The answer shows each pass's arg-max and is final when the canvas is. Canvases that do not grow are whole:
/// the last one may extend beyond the answer, so the cache must hold capacity() positions.
///
/// With a constraint the arg-max of a pass is the most probable completion of the finished canvases that the automaton
/// accepts, and draws are those of a drawn one, whose entropies are at least their surprisal. So each pass's answer can
/// be completed, and the last pass's is one.
///
/// A prediction that is fed back is a distribution over the whole vocabulary, so only these passes keep rows x
/// vocabulary logits between passes. Tokens with a probability below 1e-6 / vocabulary are left out: together they have
/// less than a millionth.
class Refiner {
 public:
  /// The cache must hold capacity() positions.
  Refiner(const ModelDesc& desc, Canvas canvas, RefineOptions options, KvCache& cache);

  /// Positions of a prompt and of the canvases for an answer of `length`.
  static Position capacity(Position prompt, Position length, const CanvasDesc& canvas);
  /// Positions of the whole canvases behind `before` positions of the answer that are together at most `most` long; of
  /// the first one if it alone is longer.
  static Position whole(Position before, Position most, const CanvasDesc& canvas);

  /// The next forward pass; empty when the sequence is finished. Valid until absorb().
  std::span<const SequenceStep> prepare();
  /// `scores`: of prepare()'s step. Errors: logits that are not numbers (kInvalidFile).
  Expected<DenoiseStep> absorb(std::span<const Scores> scores);

  const Canvas& canvas() const { return canvas_; }
  const DenoiseCounters& counters() const { return counters_; }
  /// End of the finished canvases.
  Position settled() const { return std::min(begin_, canvas_.size()); }
  std::optional<Position> stop_position() const { return stop_; }
  /// Positions before it are in the cache as causal passes over final tokens left them.
  Position read() const { return read_; }

 private:
  void begin_canvas();
  Position canvas_end() const { return begin_ + static_cast<Position>(shown_.size()); }
  Expected<void> hold(const Scores& scores, std::vector<CanvasLook>& looks);
  StepPlan read_context() const;
  StepPlan refine() const;
  ScoreRequest request();
  void show(std::span<const CanvasLook> looks, DenoiseStep& step);
  void feed_back(const Scores& scores);
  void finish_canvas();

  const ModelDesc& desc_;
  Canvas canvas_;
  RefineOptions options_;
  KvCache& cache_;
  CanvasSampler sampler_;
  ConstraintGuide best_, draws_;  ///< of the arg-max and of the draws
  Canvas finished_;               ///< masked where no canvas is final
  Position read_ = 0;             ///< positions before it are in the cache as context
  Position begin_ = 0;            ///< of the canvas
  std::uint32_t pass_ = 0;        ///< of the canvas region, over the whole answer
  std::vector<TokenId> shown_;    ///< by position of the canvas
  std::vector<RowMixture> fed_back_;
  std::vector<SequenceStep> prepared_;
  DenoiseCounters counters_;
  std::optional<Position> stop_;
};

}  // namespace dllm
