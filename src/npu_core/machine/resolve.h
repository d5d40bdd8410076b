#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/to_size.h"
#include "npu_core/isa/encoding.h"
#include "npu_core/machine/state.h"

namespace dllm::npu {

/// A resolved access: `groups` x `rows` runs of `length`, in elements (VRAM, MRAM), words (FP_MEM, INT_MEM) or bytes
/// (HBM). Runs start at base + g * group_stride + r * row_stride. Accumulators have no address: length 0.
struct MemoryRange {
  Space space = Space::kVram;
  Access access = Access::kNone;
  std::uint64_t base = 0;
  std::uint32_t groups = 1;
  std::uint64_t group_stride = 0;
  std::uint32_t rows = 1;
  std::uint64_t row_stride = 0;
  std::uint32_t length = 0;

  std::uint64_t total() const { return std::uint64_t{groups} * rows * length; }
  std::uint32_t runs() const { return groups * rows; }
  /// Start of a run; runs of a group follow each other.
  std::uint64_t run(std::uint32_t i) const { return base + i / rows * group_stride + i % rows * row_stride; }
  /// One past the last address; precondition: there are runs.
  std::uint64_t end() const { return run(runs() - 1) + length; }
};

/// At most four accesses; the HBM access has two streams.
inline constexpr int kMaxRanges = kMaxMemoryUses + 1;

struct ResolvedAccesses {
  std::array<MemoryRange, kMaxRanges> ranges = {};
  int count = 0;
  /// The length operand (V_TOPK_MASK, V_SELECT_INT, S_MAP_V_FP), the number of experts (V_TOPK); else 0.
  std::uint32_t elements = 0;

  const MemoryRange& operator[](int i) const { return ranges[to_size(i)]; }
};

/// Why a program was stopped, and how to fix it. The machine adds the place.
struct Trap {
  std::string what;
  std::string hint;
};

/// The addresses of every memory access of the instruction, in the order of its table entry; HBM gives the element
/// stream, then (formats with a scale) the scale stream. Checks alignment and bounds: nothing is clamped. False: `trap`
/// says why.
bool resolve(const MachineState& state, const Instruction& instruction, const InstructionInfo& row,
             ResolvedAccesses& accesses, Trap& trap);

/// The format of an H_* instruction, by opcode and prec.
MxFormat transfer_format(const MachineState& state, const Instruction& instruction);

}  // namespace dllm::npu
