#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "numerics/mx.h"
#include "numerics/tensor_type.h"

namespace dllm {

/// What an element of a block with a known scale can be: the nearest level, its code in the file, its value.
class Levels {
 public:
  struct Level {
    std::uint16_t code = 0;
    double value = 0;
  };
  /// Ties go to the even code. `x` is finite.
  Level nearest(double x) const;

 private:
  friend class BlockGrid;
  double step_ = 0;
  int low_ = 0, high_ = 0;    ///< integers: value = step * level
  std::uint16_t offset_ = 0;  ///< integers: code = (level + offset) & mask
  std::uint16_t mask_ = 0xffff;
  const std::vector<double>* magnitudes_ = nullptr;  ///< floating point: by code without its sign, in steps
};

/// The blocks of a tensor type as a choice of a scale and then of a level per element, which is what methods better
/// than rounding to nearest need. Types: the MX formats, Q4_0 and Q8_0.
class BlockGrid {
 public:
  static std::optional<BlockGrid> of(TensorType type);

  int elements() const { return elements_; }
  /// Scales worth a try for a block, as the file stores them (E8M0, or binary16); the first is the type's own for these
  /// values. MX: that exponent, two smaller ones, which clip, and the next larger one. Q4_0 and Q8_0: the range times
  /// 1, 0.995, 0.99, 0.97, 0.95, 0.93, 0.9, 0.8, 0.7, 0.6 and 0.5 (PLENA's candidates); of Q4_0, whose levels are -8 to
  /// 7, also with the largest element at 7. A block of zeros has one. Binary16 scales are at most 65504.
  void scales(std::span<const double> block, std::vector<std::uint16_t>& out) const;
  Levels levels(std::uint16_t scale) const;
  /// The bytes of a block.
  void write(std::span<const std::uint16_t> codes, std::uint16_t scale, std::byte* to) const;

 private:
  TensorType type_ = TensorType::kQ8_0;
  MxFormat mx_{};  ///< not scaled(): Q4_0 or Q8_0
  int elements_ = 32;
};

}  // namespace dllm
