#pragma once

#include <cstdint>
#include <vector>

#include "npu_backend/accuracy/vector_unit.h"
#include "numerics/mx.h"

// Loops over lanes that a step spends its time in, compiled once per instruction set. Each lane has the same operations
// on all of them, so they give the same bits; the definitions are round_to() and mx_quantize().

namespace dllm::npu::accuracy {

/// Numbers of an MX format that its conversion needs, without functions of other sources.
struct LaneFormatInfo {
  explicit LaneFormatInfo(const MxFormat& format);

  int block, exponent_bits, mantissa_bits, bias, emax, fraction;
  int low, high;  ///< of integers
  bool ceiling;   ///< the exponent of a block is rounded up
  double max;
};

struct LaneKernel {
  const char* name = "";
  void (*round)(VectorPrecision precision, float* lanes, std::int64_t n) = nullptr;
  /// out = the rounded sums.
  void (*round_sums)(VectorPrecision precision, const double* sums, std::int64_t n, float* out) = nullptr;
  /// out = round(float32(sum) * scale)
  void (*scale_sums)(VectorPrecision precision, const double* sums, float scale, std::int64_t n, float* out) = nullptr;
  /// a = round(a + b)
  void (*add)(VectorPrecision precision, float* a, const float* b, std::int64_t n) = nullptr;
  /// The integers and exponents of whole blocks, as quantize() of operand_format.h.
  void (*integers)(const LaneFormatInfo& format, const float* x, std::int64_t n, float* lanes,
                   std::int16_t* exponents) = nullptr;
  /// The largest of `least` and the lanes that are seen, and a NaN if one of them is.
  float (*maximum)(const float* lanes, const std::uint8_t* seen, std::int64_t n, float least) = nullptr;
};

/// By instruction set that this processor supports, slowest first.
const std::vector<LaneKernel>& lane_kernels();
/// The last of them.
const LaneKernel& lane_kernel();

}  // namespace dllm::npu::accuracy
