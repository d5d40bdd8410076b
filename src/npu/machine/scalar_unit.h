#pragma once

#include "npu/machine/resolve.h"

namespace dllm::npu {

/// S_* with resolved addresses.
void execute_scalar(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses);

}  // namespace dllm::npu
