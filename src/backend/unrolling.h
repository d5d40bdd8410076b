#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"

namespace dllm {

/// What a decoder commits of the coming passes' predictions, as long as only its commits change the canvas and the
/// passes have the same rows.
struct CommitRule {
  /// Every prediction with a confidence of at least min(threshold, best - tie). Nothing: as many as `counts` says.
  std::optional<double> threshold;
  double tie = 0;
  /// The most confident ones of each pass, from the coming one on.
  std::vector<std::int32_t> counts{};
  std::int32_t passes = 1;  ///< what it holds for; as many as `counts` has, if that is read
  Position shift = 0;       ///< the row at p predicts p + shift
  /// Tokens that may end the answer. No pass follows one that commits such a token with no scored mask before it.
  std::vector<TokenId> stops{};
  std::optional<Position> first_stop{};  ///< where the canvas has one already
};

/// The K/V cache of a backend that runs several passes in a row before anybody looks at their results (--unroll). It is
/// told what the decoder will make of them. The loop asks for one pass after the other all the same: those that have
/// run already are answered at once, if they are what was foreseen; else they are undone.
class UnrollingCache {
 public:
  virtual ~UnrollingCache() = default;
  /// The most passes in a row; 1: none, and nobody needs to say what to expect.
  virtual std::int32_t most_passes() const = 0;
  /// Of the coming pass on this cache; nothing: it is not known what its decoder commits. Holds for that pass only.
  virtual void expect(std::optional<CommitRule> rule) = 0;

 protected:
  UnrollingCache() = default;
  UnrollingCache(const UnrollingCache&) = default;
  UnrollingCache& operator=(const UnrollingCache&) = default;
};

}  // namespace dllm
