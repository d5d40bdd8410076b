#pragma once

#include "npu/machine/resolve.h"

namespace dllm::npu {

/// V_*, C_HADAMARD_TRANSFORM and the sampling instructions, with resolved addresses.
void execute_vector(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses);

// Parts of execute_vector(), one family per file.
void execute_reduction(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses);
void execute_permutation(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses);
void execute_selection(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses);

/// Sections of HLEN lanes that V_MASK enables, for instructions with rmask; all lanes without.
class LaneMask {
 public:
  LaneMask(const MachineState& state, const Instruction& instruction);
  bool all() const { return all_; }
  bool active(std::size_t lane) const {
    return all_ || (lane / section_ < 32 && (mask_ >> (lane / section_) & 1) != 0);
  }

 private:
  bool all_;
  std::uint32_t mask_;
  std::size_t section_;
};

}  // namespace dllm::npu
