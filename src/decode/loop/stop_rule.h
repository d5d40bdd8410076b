#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "decode/canvas.h"

namespace dllm {

/// Where an answer ends: at its first stop token, unless its length is fixed.
struct StopRule {
  std::vector<TokenId> ids;
  bool exact_length = false;  ///< a stop token is a token like any other

  /// The first stop token in [prompt, end); nullopt if there is none. With exact length too: results report it.
  std::optional<Position> first(const Canvas& canvas, Position end) const {
    for (Position p = canvas.prompt_end(); p < end; ++p)
      if (!canvas.masked(p) && std::find(ids.begin(), ids.end(), canvas.token(p)) != ids.end()) return p;
    return std::nullopt;
  }
  /// The first stop token without a mask before it.
  std::optional<Position> decided(const Canvas& canvas) const {
    return first(canvas, canvas.first_masked(canvas.prompt_end()));
  }
};

}  // namespace dllm
