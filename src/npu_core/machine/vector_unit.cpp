#include "npu_core/machine/vector_unit.h"

#include "base/to_size.h"

namespace dllm::npu {
namespace {

/// target = f(source, lane), lane by lane; disabled lanes copy the source. The target may be any operand of f.
template <class F>
bool lanes(MachineState& state, const Instruction& instruction, const MemoryRange& source, const MemoryRange& target,
           F f) {
  const Bf16* a = state.vram.data() + source.base;
  Bf16* out = state.vram.data() + target.base;
  const auto n = to_size(state.config.vlen);
  const LaneMask mask(state, instruction);
  if (mask.all())
    for (std::size_t i = 0; i < n; ++i) out[i] = f(a[i], i);
  else
    for (std::size_t i = 0; i < n; ++i) out[i] = mask.active(i) ? f(a[i], i) : a[i];
  return true;
}

using LanePair = Bf16 (*)(Bf16, Bf16);
using LaneOne = Bf16 (*)(Bf16);

// Each operation twice: on BF16 and on FP16 lanes.

template <LanePair f, LanePair half>
bool row_row(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap& trap) {
  if constexpr (f != half)
    if (state.config.lanes == LaneFormat::kF16) return row_row<half, half>(state, instruction, accesses, trap);
  const Bf16* b = state.vram.data() + accesses[1].base;
  return lanes(state, instruction, accesses[0], accesses[2], [b](Bf16 x, std::size_t i) { return f(x, b[i]); });
}

template <LanePair f, LanePair half>
bool row_scalar(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap& trap) {
  if constexpr (f != half)
    if (state.config.lanes == LaneFormat::kF16) return row_scalar<half, half>(state, instruction, accesses, trap);
  const Bf16 y = state.fp(instruction.get(Field::kRs2));
  return lanes(state, instruction, accesses[0], accesses[1], [y](Bf16 x, std::size_t) { return f(x, y); });
}

template <LaneOne f, LaneOne half>
bool row_only(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap& trap) {
  if constexpr (f != half)
    if (state.config.lanes == LaneFormat::kF16) return row_only<half, half>(state, instruction, accesses, trap);
  return lanes(state, instruction, accesses[0], accesses[1], [](Bf16 x, std::size_t) { return f(x); });
}

Bf16 reversed_sub(Bf16 x, Bf16 y) { return bf16_sub(y, x); }
Bf16 reversed_f16_sub(Bf16 x, Bf16 y) { return f16_sub(y, x); }

bool subtract_scalar(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses,
                     Trap& trap) {
  const bool reversed = instruction.get(Field::kFunct) == 1;
  return (reversed ? row_scalar<reversed_sub, reversed_f16_sub> : row_scalar<bf16_sub, f16_sub>)(state, instruction,
                                                                                                 accesses, trap);
}

constexpr Semantics kVectorSemantics[] = {
    {Op::V_ADD_VV, row_row<bf16_add, f16_add>},
    {Op::V_SUB_VV, row_row<bf16_sub, f16_sub>},
    {Op::V_MUL_VV, row_row<bf16_mul, f16_mul>},
    {Op::V_MAX_VV, row_row<bf16_max, bf16_max>},
    {Op::V_MIN_VV, row_row<bf16_min, bf16_min>},
    {Op::V_ADD_VF, row_scalar<bf16_add, f16_add>},
    {Op::V_SUB_VF, subtract_scalar},
    {Op::V_MUL_VF, row_scalar<bf16_mul, f16_mul>},
    {Op::V_MAX_VF, row_scalar<bf16_max, bf16_max>},
    {Op::V_MIN_VF, row_scalar<bf16_min, bf16_min>},
    {Op::V_EXP_V, row_only<bf16_exp, f16_exp>},
    {Op::V_RECI_V, row_only<bf16_reciprocal, f16_reciprocal>},
    {Op::V_SQRT_V, row_only<bf16_sqrt, f16_sqrt>},
};

}  // namespace

LaneMask::LaneMask(const MachineState& state, const Instruction& instruction)
    : all_(instruction.get(Field::kRs3) == 0), mask_(state.v_mask), section_(to_size(state.config.hlen)) {}

std::span<const Semantics> vector_semantics() { return kVectorSemantics; }

}  // namespace dllm::npu
