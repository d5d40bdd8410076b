#pragma once

#include "npu/machine/resolve.h"

namespace dllm::npu {

/// H_PREFETCH_M, H_PREFETCH_V, H_STORE_V with resolved addresses.
void execute_transfer(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses);

}  // namespace dllm::npu
