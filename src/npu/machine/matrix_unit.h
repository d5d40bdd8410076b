#pragma once

#include <optional>

#include "npu/machine/resolve.h"

namespace dllm::npu {

/// All matrix instructions with resolved addresses. False: `trap` says why (matrix SRAM never loaded, rows of different
/// formats, a contraction longer than the accumulators' window, formats that change within a sum).
bool execute_matrix(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap& trap);

/// Guard bits of the integer window for a pair of formats, and whether 32 bits are enough; nullopt: the pair runs on
/// the floating path (BF16 on either side, or products too wide: E5M2).
///
///   G = W - (bits of a) - (bits of w) - contraction_bits, W = 31 if that leaves G >= 0, else 63
struct Window {
  int guard = 0;
  bool narrow = true;
};
std::optional<Window> matrix_window(const MxFormat& input, const MxFormat& matrix, int contraction_bits);

}  // namespace dllm::npu
