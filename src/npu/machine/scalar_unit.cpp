#include "npu/machine/scalar_unit.h"

#include <algorithm>

namespace dllm::npu {
namespace {

void execute_integer(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses) {
  const std::uint32_t rd = instruction.get(Field::kRd);
  const std::uint32_t a = state.gp[instruction.get(Field::kRs1)], b = state.gp[instruction.get(Field::kRs2)];
  switch (instruction.op) {
    case Op::S_ADD_INT:
      return state.set_gp(rd, a + b);
    case Op::S_ADDI_INT:
      return state.set_gp(rd, a + instruction.get(Field::kImm18));
    case Op::S_SUB_INT:
      return state.set_gp(rd, a - b);
    case Op::S_MUL_INT:
      return state.set_gp(rd, a * b);
    case Op::S_LUI_INT:
      return state.set_gp(rd, instruction.get(Field::kImm22) << 12);
    case Op::S_LD_INT:
      return state.set_gp(rd, state.int_mem[accesses[0].base]);
    case Op::S_ST_INT:
      state.int_mem[accesses[0].base] = state.gp[rd];
      return;
    default:
      return;
  }
}

/// FP_MEM words into a row; the lanes behind them become 0.
void map_to_row(MachineState& state, const ResolvedAccesses& accesses) {
  const MemoryRange &words = accesses[0], &row = accesses[1];
  Bf16* out = state.vram.data() + row.base;
  std::fill_n(std::copy_n(state.fp_mem.data() + words.base, words.length, out), row.length - words.length, Bf16{0});
}

}  // namespace

void execute_scalar(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses) {
  if (info(instruction.op).unit == Unit::kScalarInt) return execute_integer(state, instruction, accesses);
  const std::uint32_t rd = instruction.get(Field::kRd);
  const Bf16 a = state.fp(instruction.get(Field::kRs1) % kFpRegisters),
             b = state.fp(instruction.get(Field::kRs2) % kFpRegisters);
  switch (instruction.op) {
    case Op::S_ADD_FP:
      return state.set_fp(rd, bf16_add(a, b));
    case Op::S_SUB_FP:
      return state.set_fp(rd, bf16_sub(a, b));
    case Op::S_MAX_FP:
      return state.set_fp(rd, bf16_max(a, b));
    case Op::S_MUL_FP:
      return state.set_fp(rd, bf16_mul(a, b));
    case Op::S_EXP_FP:
      return state.set_fp(rd, bf16_exp(a));
    case Op::S_RECI_FP:
      return state.set_fp(rd, bf16_reciprocal(a));
    case Op::S_SQRT_FP:
      return state.set_fp(rd, bf16_sqrt(a));
    case Op::S_MV_FP:
      return state.set_fp(rd, a);
    case Op::S_LI_FP:
      return state.set_fp(rd, static_cast<Bf16>(instruction.get(Field::kImm16)));
    case Op::S_LD_FP:
      return state.set_fp(rd, state.fp_mem[accesses[0].base]);
    case Op::S_ST_FP:
      state.fp_mem[accesses[0].base] = state.fp(rd);
      return;
    case Op::S_MAP_V_FP:
    case Op::S_MAP_V_FP_LEN:
      return map_to_row(state, accesses);
    default:
      return;
  }
}

}  // namespace dllm::npu
