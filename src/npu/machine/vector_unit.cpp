#include "npu/machine/vector_unit.h"

namespace dllm::npu {
namespace {

/// out = f(a), lane by lane; lanes that are off copy a. `out` may be `a` or a row operand of f.
template <class F>
void lanes(const MachineState& state, const Instruction& instruction, const Bf16* a, Bf16* out, F f) {
  const auto n = static_cast<std::size_t>(state.config.vlen);
  const LaneMask mask(state, instruction);
  if (mask.all()) {
    for (std::size_t i = 0; i < n; ++i) out[i] = f(a[i], i);
    return;
  }
  for (std::size_t i = 0; i < n; ++i) out[i] = mask.active(i) ? f(a[i], i) : a[i];
}

void elementwise(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses) {
  const InstructionInfo& row = info(instruction.op);
  const bool two_rows = row.memory_count == 3;
  Bf16* vram = state.vram.data();
  const Bf16* a = vram + accesses[0].base;
  const Bf16* b = vram + (two_rows ? accesses[1].base : 0);
  Bf16* out = vram + accesses[two_rows ? 2 : 1].base;
  const Bf16 f = row.operands[2].kind == OperandKind::kFp ? state.fp(instruction.get(Field::kRs2)) : Bf16{0};
  const auto run = [&](auto function) { lanes(state, instruction, a, out, function); };
  switch (instruction.op) {
    case Op::V_ADD_VV:
      return run([b](Bf16 x, std::size_t i) { return bf16_add(x, b[i]); });
    case Op::V_SUB_VV:
      return run([b](Bf16 x, std::size_t i) { return bf16_sub(x, b[i]); });
    case Op::V_MUL_VV:
      return run([b](Bf16 x, std::size_t i) { return bf16_mul(x, b[i]); });
    case Op::V_MAX_VV:
      return run([b](Bf16 x, std::size_t i) { return bf16_max(x, b[i]); });
    case Op::V_MIN_VV:
      return run([b](Bf16 x, std::size_t i) { return bf16_min(x, b[i]); });
    case Op::V_ADD_VF:
      return run([f](Bf16 x, std::size_t) { return bf16_add(x, f); });
    case Op::V_SUB_VF:
      if (instruction.get(Field::kFunct) == 1) return run([f](Bf16 x, std::size_t) { return bf16_sub(f, x); });
      return run([f](Bf16 x, std::size_t) { return bf16_sub(x, f); });
    case Op::V_MUL_VF:
      return run([f](Bf16 x, std::size_t) { return bf16_mul(x, f); });
    case Op::V_MAX_VF:
      return run([f](Bf16 x, std::size_t) { return bf16_max(x, f); });
    case Op::V_MIN_VF:
      return run([f](Bf16 x, std::size_t) { return bf16_min(x, f); });
    case Op::V_EXP_V:
      return run([](Bf16 x, std::size_t) { return bf16_exp(x); });
    case Op::V_RECI_V:
      return run([](Bf16 x, std::size_t) { return bf16_reciprocal(x); });
    default:
      return;
  }
}

}  // namespace

LaneMask::LaneMask(const MachineState& state, const Instruction& instruction)
    : all_(instruction.get(Field::kRs3) == 0),
      mask_(state.v_mask),
      section_(static_cast<std::size_t>(state.config.hlen)) {}

void execute_vector(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses) {
  switch (instruction.op) {
    case Op::V_RED_SUM:
    case Op::V_RED_MAX:
    case Op::V_RED_SUM_SEG:
    case Op::V_RED_MAX_SEG:
    case Op::V_RED_MAX_IDX:
      return execute_reduction(state, instruction, accesses);
    case Op::V_PS_V:
    case Op::V_SHFT_V:
    case Op::C_HADAMARD_TRANSFORM:
      return execute_permutation(state, instruction, accesses);
    case Op::V_TOPK:
    case Op::V_TOPK_MASK:
    case Op::V_SELECT_INT:
      return execute_selection(state, instruction, accesses);
    default:
      return elementwise(state, instruction, accesses);
  }
}

}  // namespace dllm::npu
