#pragma once

#include <cstddef>
#include <cstdint>

namespace dllm {

using TokenId = std::int32_t;   ///< index into the vocabulary; -1: none, as for masks without a mask token
using Position = std::int32_t;  ///< index into the canvas, 0 = first prompt token

/// Half-open range of canvas positions.
struct PositionRange {
  Position begin = 0;
  Position end = 0;

  Position size() const { return end - begin; }
  bool contains(Position p) const { return p >= begin && p < end; }
  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

}  // namespace dllm
