#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "npu_core/machine/arithmetic.h"

namespace dllm::npu {

/// A result store of the matrix unit: one integer window per output, or FP32 sums.
///
/// Fixed: an output is value * 2^(reference - guard + scale_shift), where `reference` is the largest block exponent so
/// far (kNoReference: none) and value stays below 2^31, or 2^63 for wide formats.
struct Accumulator {
  enum class Mode : std::uint8_t { kEmpty, kFixed, kFloat };
  static constexpr std::int32_t kNoReference = std::numeric_limits<std::int32_t>::min() / 2;

  Mode mode = Mode::kEmpty;
  int guard = 0;            ///< bits below the reference exponent that are kept
  int scale_shift = 0;      ///< minus the fraction bits of both operands
  std::uint64_t terms = 0;  ///< products per output since it was cleared
  std::uint32_t groups = 0, rows = 0, cols = 0;
  std::vector<std::int64_t> value;
  std::vector<std::int32_t> reference;
  std::vector<std::uint8_t> nan;
  std::vector<float> sum;

  bool empty() const { return mode == Mode::kEmpty; }
  void clear();
  /// Prepares for outputs [groups][rows][cols]; false: it holds a partial sum of another shape or kind.
  bool open(Mode wanted, std::uint32_t g, std::uint32_t r, std::uint32_t c, int guard_bits, int shift);
  /// Output i rounded once; 0 if nothing was accumulated.
  Bf16 lane(LaneFormat format, std::size_t i) const;
  float f32(std::size_t i) const;
};

}  // namespace dllm::npu
