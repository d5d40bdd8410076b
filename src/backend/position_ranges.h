#pragma once

#include <span>
#include <vector>

#include "base/types.h"

// Sets of positions as lists of ranges: sorted, disjoint.

namespace dllm {

/// Adds a position that is behind all of `ranges`.
void append(std::vector<PositionRange>& ranges, Position position);

/// Adds a range, which may lie anywhere; ranges that touch become one.
void unite(std::vector<PositionRange>& ranges, PositionRange range);

/// The positions that both have.
std::vector<PositionRange> common(std::span<const PositionRange> one, std::span<const PositionRange> other);

}  // namespace dllm
