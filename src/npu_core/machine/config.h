#pragma once

#include <cstdint>

#include "dllm/error.h"
#include "npu_core/device/smoothing.h"
#include "npu_core/machine/arithmetic.h"
#include "numerics/mx.h"

namespace dllm::npu {

/// The functional machine's view of a device, including reset values of the CSRs.
struct MachineConfig {
  // Array geometry. The defaults are PLENA's transactional configuration.
  int blen = 4;   ///< sub-array edge: rows and columns of one M_MM
  int mlen = 64;  ///< contraction lanes of the matrix unit
  int vlen = 64;  ///< lanes of the vector unit
  int hlen = 16;  ///< lanes of one attention head

  std::uint64_t vram_elements = std::uint64_t{1} << 22;   ///< multiple of vlen
  std::uint64_t mram_elements = std::uint64_t{64} << 12;  ///< multiple of mlen^2
  std::uint64_t fp_words = 4096;
  std::uint64_t int_words = 4096;
  std::uint64_t hbm_bytes = std::uint64_t{1} << 32;
  int loop_depth = 16;  ///< hardware loop stack; PLENA's RTL has 4

  LaneFormat lanes = LaneFormat::kBf16;
  bool noise = true;  ///< has generators for V_RED_DRAW

  int prefetch_m_rows = 0;  ///< 0: mlen
  int prefetch_v_rows = 4;
  int store_v_rows = 4;

  MxFormat weight = {MxElement::kInt4, MxRule::kOcp, 32};
  MxFormat matrix_kv = {MxElement::kInt4, MxRule::kOcp, 32};
  MxFormat activation = {MxElement::kBF16, MxRule::kOcp, 1};
  MxFormat vector_kv = {MxElement::kInt4, MxRule::kOcp, 32};
  MxFormat matrix_input = {MxElement::kInt8, MxRule::kOcp, 32};  ///< the array's input format for vector operands

  /// A contraction has fewer than 2^contraction_bits terms; determines the guard bits of the integer accumulators.
  int contraction_bits = 15;
  /// Of the caches of compiled steps: the machine itself has no notion of it.
  Smoothing smoothing = {};
  /// The published emulator's behaviour: a running V_RED_SUM is rounded to BF16 after every row.
  bool bf16_sums = false;
  /// M_TMV has the vector in rs1 and the matrix in rs2, as in PLENA's flash-attention template. Its emulator, and this
  /// machine without the switch, read the matrix from rs1.
  bool tmv_vector_first = false;

  int heads() const { return mlen / hlen; }
  /// The lanes' format in HBM: transfers with it copy bits.
  MxFormat lane_format() const {
    return {lanes == LaneFormat::kBf16 ? MxElement::kBF16 : MxElement::kF16, MxRule::kOcp, 1};
  }
  /// Errors: kUsage with the first rule that is violated.
  Expected<void> validate() const;
  bool operator==(const MachineConfig&) const = default;
};

}  // namespace dllm::npu
