#pragma once

#include <set>
#include <span>
#include <vector>

#include "decode/decoder/decoder.h"

namespace dllm {

/// The states that a window has had. Decoders that may make masks again under --compat use it to detect cycles, in
/// which upstream's loops would never end.
class SeenStates {
 public:
  /// Whether `edits` lead from the canvas to a state that this window has had before, including the current one.
  /// Records both states; forgets those of other windows.
  bool repeats(const DecodeContext& context, std::span<const Edit> edits);
  void forget() { states_.clear(); }

 private:
  PositionRange window_{-1, -1};
  std::set<std::vector<TokenId>> states_;
};

}  // namespace dllm
