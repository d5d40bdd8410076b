#pragma once

#include <algorithm>
#include <cstdint>

#include "base/integers.h"

namespace dllm::npu {

/// Other work between the column blocks of a block of rows of a product.
struct Slices {
  std::int64_t lead = 0;     ///< column blocks before the first slice
  std::int64_t between = 0;  ///< before each further one
  std::int64_t each = 0;     ///< rows of a slice
  std::int64_t full = 0;     ///< slices of so many rows
  std::int64_t left = 0;     ///< rows of a last one, 0: there is none

  constexpr std::int64_t count() const { return full + (left > 0 ? 1 : 0); }
};

/// `rows` rows of other work, spread over `columns` column blocks of `k_tiles` tiles each. `fresh`: its rows are
/// results of the block before; slices do not begin before these are written, or the front end would wait for them, and
/// the array for the front end. Fill and write-out take as long as four tiles of BLEN rows.
constexpr Slices make_slices(std::int64_t columns, std::int64_t k_tiles, std::int64_t rows, bool fresh) {
  constexpr std::int64_t kFill = 4;
  Slices s;
  s.lead = fresh ? std::min(columns - 1, ceil_div(kFill, k_tiles) + 1) : 0;
  s.each = ceil_div(rows, columns - s.lead);
  s.full = rows / s.each;
  s.left = rows % s.each;
  s.between = (columns - s.lead) / s.count();
  return s;
}

/// Pieces in which work on a whole block is emitted behind its column blocks, so that the vector unit finishes before
/// the array's queue is empty.
constexpr std::int64_t pieces_behind(std::int64_t columns, std::int64_t blen) {
  return columns % 4 == 0 && blen % 4 == 0 ? 4 : 1;
}

/// Rows of at most so many slabs are interleaved in pairs.
constexpr bool in_pairs(std::int64_t rows, std::int64_t slabs) { return rows % 2 == 0 && slabs <= 8; }

/// Accesses of vector SRAM by work on a row, per slab: unchained operands, and results.
inline constexpr std::int64_t kAddAccesses = 3;
/// x x reads twice, squares go out, and each of the two products has three accesses minus the chained operand.
inline constexpr std::int64_t kNormAccesses = 7;
/// Both operands of the sum and the sum, which is squared as it leaves the adder.
inline constexpr std::int64_t kResidualNormAccesses = kNormAccesses + 1;
/// Shift, two products, sum: x twice, cos, sin, four results, one operand of the sum.
inline constexpr std::int64_t kRopeAccesses = 9;
/// Negate, e^x, 1 + x, reciprocal, two products: gate twice, up, six results.
inline constexpr std::int64_t kSwigluAccesses = 9;

}  // namespace dllm::npu
