#pragma once

#include <cstdint>
#include <vector>

#include "npu_core/machine/accumulator.h"

namespace dllm::npu {

/// One product of the integer array: [m x k] . [k x n], every element an integer times a power of two.
///
/// A group is a run of k in which each operand has a single scale; its products are summed exactly. An exponent below
/// kNoExponent marks a group whose block contains only zeros on that side.
struct FixedProduct {
  static constexpr int kNoExponent = -20000;

  int m = 0, n = 0, k = 0;
  int group = 1;                           ///< terms per group; k is a multiple
  int column_width = 1;                    ///< consecutive columns that share an exponent; n is a multiple
  int narrow = 1;                          ///< 1: 32-bit window
  std::vector<std::int32_t> a;             ///< [m][k]
  std::vector<std::int32_t> w;             ///< [k][n]
  std::vector<std::int16_t> ea;            ///< [m][k / group]
  std::vector<std::int16_t> ew;            ///< [k / group][n / column_width]
  std::vector<std::uint8_t> a_nan, w_nan;  ///< [m], [n]: the operand holds a NaN

  int groups() const { return k / group; }
  int columns() const { return n / column_width; }
};

/// Adds the product to outputs first + i * row_stride + j of an accumulator in fixed mode. Per output:
///
///   e_g       = exponent of group g: sum of both block exponents
///   reference = max(reference so far, max over g of e_g)
///   value     = sticky(value >> rise of the reference) + sum over g of sticky((d_g << guard) >> (reference - e_g))
///
/// where d_g is the exact sum of the group's integer products and sticky() keeps a lost one as the lowest bit. All
/// scales of an instruction are known before its first product, so the reference moves once per instruction. Nothing is
/// lost while the exponents span at most `guard` bits; the sum is then exact.
void add_fixed_product(const FixedProduct& product, Accumulator& accumulator, std::size_t first,
                       std::size_t row_stride);

}  // namespace dllm::npu
