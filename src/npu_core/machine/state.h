#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_core/isa/csr.h"
#include "npu_core/isa/isa.h"
#include "npu_core/machine/accumulator.h"
#include "npu_core/machine/arithmetic.h"
#include "npu_core/machine/config.h"
#include "npu_core/machine/lazy_array.h"

namespace dllm::npu {

/// Exponent of a block in matrix SRAM: the scale's power of two, or one of these marks.
inline constexpr std::int16_t kZeroBlock = -30000, kNanBlock = 30000;
/// Exponents are stored per 8 elements, the smallest block; larger blocks repeat them.
inline constexpr std::size_t kExponentGrain = 8;

/// Matrix SRAM, decoded when it is loaded: fixed-point elements (or the bits of BF16 and FP16), block exponents, and
/// the format of every row of MLEN. Rows of packed weights are FP16.
struct MatrixSram {
  LazyArray<std::int32_t> values;
  LazyArray<std::int16_t> exponents;      ///< [element / 8]
  std::vector<std::uint32_t> row_format;  ///< mx_format_number() + 1; 0: never loaded
};

struct LoopFrame {
  std::uint32_t start = 0;  ///< index of C_LOOP_START; the body is (start, end]
  std::uint32_t end = 0;
  std::uint32_t trip = 0;  ///< from 0
};

/// Which memories a machine has. Timing depends on addresses and integers only (RunOptions::data).
enum class Memories { kAll, kIntegers };

/// All architectural state.
struct MachineState {
  /// Throws std::bad_alloc if the memories do not fit into the address space.
  explicit MachineState(const MachineConfig& machine, Memories memories = Memories::kAll);

  /// Makes the bytes [0, end) of `hbm` exist; the machine does so for what its instructions access. `end` <= hbm_bytes.
  /// A device has tens of gigabytes, of which programs use the first megabytes: to reserve all of them would fail where
  /// address space is limited (ulimit -v). Pointers into `hbm` are then void. Throws std::bad_alloc.
  void reach_hbm(std::uint64_t end) {
    if (end > hbm.size()) grow_hbm(end);
  }

  /// Resets registers, CSRs, loop stack and accumulators; memories do not change.
  void reset_registers();

  MachineConfig config;
  std::array<std::uint32_t, kGpRegisters> gp = {};
  /// Values of lanes, except that V_RED_SUM stores FP32 and V_RED_DRAW its key, up to FP64: read with fp().
  std::array<double, kFpRegisters> fp_accumulator = {};
  std::array<std::uint64_t, kAddressRegisters> address = {};
  std::uint32_t scale_reg = 0;
  std::uint32_t stride_reg = 0;
  std::uint32_t v_mask = 0;
  std::array<std::uint32_t, kCsrCount> csr = {};
  std::vector<LoopFrame> loops;

  LazyArray<Bf16> vram;
  MatrixSram mram;
  LazyArray<Bf16> fp_mem;
  LazyArray<std::uint32_t> int_mem;
  LazyArray<std::byte> hbm;  ///< its first bytes; see reach_hbm()
  Accumulator acc_mm, acc_bmm, acc_mv, acc_bmv;

  Bf16 fp(std::uint32_t index) const { return f32_to_lane(config.lanes, static_cast<float>(fp_accumulator[index])); }
  void set_fp(std::uint32_t index, Bf16 value) {
    if (index != 0) fp_accumulator[index] = static_cast<double>(lane_to_f32(config.lanes, value));
  }
  void set_gp(std::uint32_t index, std::uint32_t value) {
    if (index != 0) gp[index] = value;
  }
  std::uint32_t control(Csr which) const { return csr[static_cast<std::size_t>(which)]; }
  MxFormat format(Csr which) const { return *mx_format_from_number(control(which)); }

  /// Checks and sets a control register. Returns the trap's message, empty on success.
  std::string set_control(Csr which, std::uint32_t value);

 private:
  void grow_hbm(std::uint64_t end);
};

/// Elements, words or bytes of a memory; 0 for accumulators.
std::uint64_t space_size(const MachineConfig& config, Space space);

}  // namespace dllm::npu
