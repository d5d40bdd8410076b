#include <algorithm>

#include "npu_core/machine/semantics.h"

namespace dllm::npu {
namespace {

template <std::uint32_t (*f)(std::uint32_t, std::uint32_t)>
bool integer3(MachineState& state, const Instruction& instruction, const ResolvedAccesses&, Trap&) {
  state.set_gp(instruction.get(Field::kRd),
               f(state.gp[instruction.get(Field::kRs1)], state.gp[instruction.get(Field::kRs2)]));
  return true;
}

bool add_immediate(MachineState& state, const Instruction& instruction, const ResolvedAccesses&, Trap&) {
  state.set_gp(instruction.get(Field::kRd), state.gp[instruction.get(Field::kRs1)] + instruction.get(Field::kImm18));
  return true;
}

bool load_upper(MachineState& state, const Instruction& instruction, const ResolvedAccesses&, Trap&) {
  state.set_gp(instruction.get(Field::kRd), instruction.get(Field::kImm22) << 12);
  return true;
}

bool load_integer(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  state.set_gp(instruction.get(Field::kRd), state.int_mem[accesses[0].base]);
  return true;
}

bool store_integer(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  state.int_mem[accesses[0].base] = state.gp[instruction.get(Field::kRd)];
  return true;
}

using ScalarPair = Bf16 (*)(Bf16, Bf16);
using ScalarOne = Bf16 (*)(Bf16);

// Each operation twice: on BF16 and on FP16 scalars.

template <ScalarPair f, ScalarPair half>
bool fp3(MachineState& state, const Instruction& instruction, const ResolvedAccesses&, Trap&) {
  state.set_fp(instruction.get(Field::kRd),
               (state.config.lanes == LaneFormat::kF16 ? half : f)(state.fp(instruction.get(Field::kRs1)),
                                                                   state.fp(instruction.get(Field::kRs2))));
  return true;
}

template <ScalarOne f, ScalarOne half>
bool fp2(MachineState& state, const Instruction& instruction, const ResolvedAccesses&, Trap&) {
  const ScalarOne function = state.config.lanes == LaneFormat::kF16 ? half : f;
  state.set_fp(instruction.get(Field::kRd), function(state.fp(instruction.get(Field::kRs1))));
  return true;
}

bool load_immediate(MachineState& state, const Instruction& instruction, const ResolvedAccesses&, Trap&) {
  state.set_fp(instruction.get(Field::kRd), static_cast<Bf16>(instruction.get(Field::kImm16)));
  return true;
}

bool load_fp(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  state.set_fp(instruction.get(Field::kRd), state.fp_mem[accesses[0].base]);
  return true;
}

bool store_fp(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  state.fp_mem[accesses[0].base] = state.fp(instruction.get(Field::kRd));
  return true;
}

/// Copies FP_MEM words into a row; the lanes after them become 0.
bool map_to_row(MachineState& state, const Instruction&, const ResolvedAccesses& accesses, Trap&) {
  const MemoryRange &words = accesses[0], &row = accesses[1];
  Bf16* out = state.vram.data() + row.base;
  std::fill_n(std::copy_n(state.fp_mem.data() + words.base, words.length, out), row.length - words.length, Bf16{0});
  return true;
}

std::uint32_t add_words(std::uint32_t a, std::uint32_t b) { return a + b; }
std::uint32_t subtract_words(std::uint32_t a, std::uint32_t b) { return a - b; }
std::uint32_t multiply_words(std::uint32_t a, std::uint32_t b) { return a * b; }
Bf16 same_value(Bf16 x) { return x; }

constexpr Semantics kScalarSemantics[] = {
    {Op::S_ADD_INT, integer3<add_words>},
    {Op::S_ADDI_INT, add_immediate},
    {Op::S_SUB_INT, integer3<subtract_words>},
    {Op::S_MUL_INT, integer3<multiply_words>},
    {Op::S_LUI_INT, load_upper},
    {Op::S_LD_INT, load_integer},
    {Op::S_ST_INT, store_integer},
    {Op::S_ADD_FP, fp3<bf16_add, f16_add>},
    {Op::S_SUB_FP, fp3<bf16_sub, f16_sub>},
    {Op::S_MAX_FP, fp3<bf16_max, bf16_max>},
    {Op::S_MUL_FP, fp3<bf16_mul, f16_mul>},
    {Op::S_EXP_FP, fp2<bf16_exp, f16_exp>},
    {Op::S_RECI_FP, fp2<bf16_reciprocal, f16_reciprocal>},
    {Op::S_SQRT_FP, fp2<bf16_sqrt, f16_sqrt>},
    {Op::S_MV_FP, fp2<same_value, same_value>},
    {Op::S_LI_FP, load_immediate},
    {Op::S_LD_FP, load_fp},
    {Op::S_ST_FP, store_fp},
    {Op::S_MAP_V_FP, map_to_row},
    {Op::S_MAP_V_FP_LEN, map_to_row},
};

}  // namespace

std::span<const Semantics> scalar_semantics() { return kScalarSemantics; }

}  // namespace dllm::npu
