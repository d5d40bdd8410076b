#pragma once

#include "npu_core/machine/semantics.h"

namespace dllm::npu {

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

/// V_RED_DRAW.
bool draw(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap& trap);

}  // namespace dllm::npu
