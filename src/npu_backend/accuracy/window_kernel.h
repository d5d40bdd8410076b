#pragma once

#include <cstdint>
#include <vector>

#include "npu_backend/accuracy/operand_format.h"

// Products as the NPU's array adds them (docs/guide/npu.md, "Matrix unit"), for 16 outputs at a time. The definition is
// that of machine/fixed_product.h; here the groups of all outputs are shifted together, with the compiler's vector
// types, instead of one output after the other.

namespace dllm::npu::accuracy {

inline constexpr std::int64_t kPanel = 16;  ///< outputs of a panel

/// How products of two formats are added.
struct WindowRule {
  enum class Kind : std::uint8_t {
    kNarrow,  ///< windows of 32 bits; elements are int16, a group's sum is below 2^24 and exact in float32
    kWide,   ///< windows of 64 bits; elements are integers in float32, a group's sum is below 2^42 and exact in float64
    kFloat,  ///< float32, one rounding per product and per addition, in the order of the terms
  };
  Kind kind = Kind::kFloat;
  int guard = 0;     ///< bits kept below the reference exponent
  int fraction = 0;  ///< an integer sum counts units of 2^-fraction

  bool integers() const { return kind != Kind::kFloat; }
  static WindowRule of(const OperandFormat& a, const OperandFormat& w, int contraction_bits);
};

/// Rows times one panel. Term k of an output is a[k] * w[k]; `group` terms share an exponent on both sides.
struct WindowProduct {
  std::int64_t rows = 0;
  const float* a = nullptr;  ///< [row][terms]
  std::int64_t a_stride = 0;
  const std::int16_t* a_exponents = nullptr;  ///< [row][groups]; unused by kFloat
  std::int64_t a_exponents_stride = 0;
  const std::int16_t* narrow = nullptr;       ///< [terms][kPanel], of kNarrow
  const float* wide = nullptr;                ///< [terms][kPanel], of kWide and kFloat
  const std::int16_t* w_exponents = nullptr;  ///< [groups][kPanel]; unused by kFloat
  std::int64_t group = 1;
  // The same elements as bytes, which is faster on some processors; null, or a multiple of four per group.
  const std::uint8_t* a_bytes = nullptr;  ///< [row][terms]: element + 128
  const std::int8_t* bytes = nullptr;     ///< [terms / 4][kPanel][4]
  const std::int32_t* offsets = nullptr;  ///< [groups][kPanel]: -128 times the sum of the group's elements
  /// The ends of instructions, in groups, ascending: the reference exponent changes once per instruction.
  const std::int32_t* ends = nullptr;
  std::int64_t instructions = 0;
};

/// sums[row][kPanel]: the value that a write-out rounds. Exact for kNarrow and kFloat; rounded to odd at 53 bits for
/// kWide, which does not affect a later rounding to at most 24 bits.
void add_windows(const WindowRule& rule, const WindowProduct& product, double* sums);

/// `terms` x kPanel elements of 16 bits as float32: BF16, or FP16.
void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to);

/// The same functions for the instruction sets that this processor supports, slowest first; the last one is used. All
/// of them give the same bits.
struct WindowKernel {
  const char* name;
  void (*run)(const WindowRule& rule, const WindowProduct& product, double* sums);
  void (*widen)(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to);
};
const std::vector<WindowKernel>& window_kernels();

}  // namespace dllm::npu::accuracy
