#pragma once

#include <cstdint>
#include <vector>

#include "npu_core/machine/arithmetic.h"
#include "numerics/mx.h"

// The matrix unit's arithmetic, implemented from its definition (docs/guide/npu.md, "Matrix unit") without the
// machine's kernels: one output at a time, with every shift where the text has it. Slow, and easy to check.

namespace dllm::npu::reference {

/// A row of values in an MX format, element by element.
struct QuantizedRow {
  MxFormat format;
  std::vector<std::int64_t> fixed;  ///< integers in units of 2^-fraction * scale
  std::vector<int> exponent;        ///< of the element's block
  std::vector<bool> zero, nan;      ///< whether the whole block is
  std::vector<float> real;          ///< the values themselves
};
/// `lanes.size()` is a multiple of the format's block.
QuantizedRow quantize(const MxFormat& format, const std::vector<float>& lanes);
/// A row that is stored in the format.
QuantizedRow quantized_row(const MxFormat& format, const std::vector<std::uint16_t>& codes,
                           const std::vector<std::uint8_t>& scales);

/// The other operand of an instruction. Term k is an element of one row (a matrix read transposed: products with
/// weights, Q K^T), or of a different row for each k (P V).
struct Terms {
  const QuantizedRow* row = nullptr;                  ///< element first + k of it,
  const std::vector<const QuantizedRow*>* rows = {};  ///< or element `first` of rows[k]
  std::size_t first = 0;

  const QuantizedRow& of(std::size_t k) const { return row != nullptr ? *row : *(*rows)[k]; }
  std::size_t index(std::size_t k) const { return row != nullptr ? first + k : first; }
};

/// One output of the array: instructions add products to it, one write-out reads it.
class WindowSum {
 public:
  WindowSum(const MxFormat& input, const MxFormat& matrix, int contraction_bits);

  /// One instruction: the sum over k < count of a[first_a + k] * terms[k]. `group`: consecutive k that have a single
  /// scale on each side.
  void add(const QuantizedRow& a, std::size_t first_a, const Terms& terms, std::size_t count, std::size_t group);

  Bf16 bf16() const;               ///< M_MM_WO
  Bf16 scaled(float scale) const;  ///< M_BMM_WO

 private:
  MxFormat input_, matrix_;
  bool floating_ = false, narrow_ = false, nan_ = false, any_ = false;
  int guard_ = 0, reference_ = 0;
  std::int64_t value_ = 0;
  float sum_ = 0;
};

}  // namespace dllm::npu::reference
