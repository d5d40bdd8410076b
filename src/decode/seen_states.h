#pragma once

#include <set>
#include <span>
#include <vector>

#include "decode/decoder.h"

namespace dllm {

/// The states that a window has had. Decoders that may make masks again under --compat ask it whether they go round in
/// circles: upstream's loops would then run for ever.
class SeenStates {
 public:
  /// Whether `edits` lead from the canvas to a state that this window has had before, the present one included. Both
  /// states count as had from then on; those of another window are forgotten.
  bool repeats(const DecodeContext& context, std::span<const Edit> edits);
  void forget() { states_.clear(); }

 private:
  PositionRange window_{-1, -1};
  std::set<std::vector<TokenId>> states_;
};

}  // namespace dllm
