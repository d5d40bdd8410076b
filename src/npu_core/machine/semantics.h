#pragma once

#include <array>
#include <span>

#include "npu_core/machine/resolve.h"

namespace dllm::npu {

/// An instruction's effect on the state, with resolved addresses. False: it had none; `trap` says why.
using Execute = bool (*)(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses,
                         Trap& trap);

struct Semantics {
  Op op;
  Execute execute;
};

// One list per unit. Each instruction outside class control is in exactly one of them; Machine::control() handles
// those.
std::span<const Semantics> matrix_semantics();
std::span<const Semantics> vector_semantics();
std::span<const Semantics> reduction_semantics();
std::span<const Semantics> permutation_semantics();
std::span<const Semantics> selection_semantics();
std::span<const Semantics> scalar_semantics();
std::span<const Semantics> transfer_semantics();

/// By Op. nullptr: in no list; the machine traps instead of doing nothing.
const std::array<Execute, kOpCount>& semantics();

}  // namespace dllm::npu
