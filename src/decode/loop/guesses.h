#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/kv_cache.h"
#include "backend/scores.h"
#include "decode/canvas.h"

namespace dllm {

/// Passes that may follow the coming one, forwarded together with it, each on a branch of the cache of the one before
/// (FreeDave, arXiv 2510.00294: "draft and verification" without a second model). The result of one is used only if the
/// loop then prepares that very pass of that very canvas. So an answer is the same whatever was guessed.
class Guesses {
 public:
  /// `branches`: caches, borrowed; none: nothing can be guessed.
  explicit Guesses(std::vector<KvCache*> branches) : branches_(std::move(branches)) {}

  bool on() const { return !branches_.empty(); }
  /// Whether another pass may be guessed in addition to those expected.
  bool room() const { return expected_.size() < branches_.size(); }
  /// The branch for the next guess, which follows the pass `before`.
  KvCache& branch_after(const SequenceStep& before);
  /// Its pass will be one of this canvas.
  void expect(Canvas canvas) { expected_.push_back(std::move(canvas)); }

  /// The expected passes have been made.
  void keep(std::span<const SequenceStep> steps, std::span<const Scores> scores);
  /// Whether the next pass may have been made.
  bool waiting() const { return next_ < passes_.size(); }
  /// The scores of the next pass if it is the one expected; its cache then takes over the rows. nullptr: it is not.
  const Scores* take(const Canvas& canvas, const SequenceStep& step);
  void forget();

 private:
  struct Pass {
    SequenceStep step;
    Scores scores;
  };
  std::vector<KvCache*> branches_;
  std::vector<Canvas> expected_;  ///< by guess
  std::vector<Pass> passes_;
  std::size_t next_ = 0;
};

}  // namespace dllm
