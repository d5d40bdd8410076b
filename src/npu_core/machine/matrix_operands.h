#pragma once

#include <vector>

#include "npu_core/machine/fixed_product.h"
#include "npu_core/machine/resolve.h"

namespace dllm::npu {

/// Rows of vector SRAM as the matrix unit reads them: converted to its input format, in blocks from the first lane.
struct InputRows {
  std::uint32_t rows = 0, lanes = 0;
  MxFormat format;
  std::vector<std::int32_t> fixed;      ///< [rows][lanes]; empty on the floating path
  std::vector<std::int16_t> exponents;  ///< [rows][lanes / 8], as in MatrixSram
  std::vector<float> real;              ///< [rows][lanes]: the same values, floating path only
};

InputRows read_input(const MachineState& state, const MemoryRange& range, bool floating);

/// Part of a tile of matrix SRAM as the right operand: [k][n].
struct MatrixSlice {
  std::uint64_t base = 0;   ///< element of the first row and lane
  bool transposed = false;  ///< rows of memory are columns of the operand
  int k = 0, n = 0;
};

/// Fills w, ew, w_nan, n, k, group and column_width of a product whose left operand has blocks of `input_block`.
void read_slice(const MachineState& state, const MatrixSlice& slice, const MxFormat& format, int input_block,
                FixedProduct& product);
/// [k][n] values, for the floating path.
std::vector<float> read_slice_f32(const MachineState& state, const MatrixSlice& slice, const MxFormat& format);

/// Fills a, ea, a_nan and m from lanes [lane, lane + product.k) of all rows; call read_slice() first.
void select_lanes(const InputRows& input, std::uint32_t lane, FixedProduct& product);

}  // namespace dllm::npu
