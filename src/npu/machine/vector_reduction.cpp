#include <vector>

#include "npu/machine/vector_unit.h"

namespace dllm::npu {
namespace {

constexpr Bf16 kMinusInfinity = 0xff80;

/// Adds adjacent pairs until every section of `segment` lanes is one value: sums[s] of section s.
void add_tree(std::vector<float>& sums, std::size_t segment) {
  for (std::size_t n = sums.size(); segment > 1; segment /= 2, n /= 2)
    for (std::size_t i = 0; i < n / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
}

std::vector<float> active_values(const MachineState& state, const LaneMask& mask, const Bf16* row) {
  std::vector<float> values(static_cast<std::size_t>(state.config.vlen));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = mask.active(i) ? bf16_to_f32(row[i]) : 0.0f;
  return values;
}

struct Maximum {
  bool found = false;
  Bf16 value = kMinusInfinity;
  std::size_t lane = 0;
};

/// The first of the largest active lanes in [begin, end).
Maximum maximum(const LaneMask& mask, const Bf16* row, std::size_t begin, std::size_t end) {
  Maximum best;
  for (std::size_t i = begin; i < end; ++i)
    if (mask.active(i) && (!best.found || order_key(row[i]) > order_key(best.value))) best = {true, row[i], i};
  return best;
}

void reduce_sections(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses) {
  const LaneMask mask(state, instruction);
  const Bf16* in = state.vram.data() + accesses[0].base;
  Bf16* out = state.vram.data() + accesses[1].base;
  const auto n = static_cast<std::size_t>(state.config.vlen);
  const std::size_t segment = state.control(Csr::kSegmentLength);
  std::vector<float> sums;
  if (instruction.op == Op::V_RED_SUM_SEG) {
    sums = active_values(state, mask, in);
    add_tree(sums, segment);
  }
  for (std::size_t begin = 0; begin < n; begin += segment) {
    const Bf16 result =
        sums.empty() ? maximum(mask, in, begin, begin + segment).value : f32_to_bf16(sums[begin / segment]);
    for (std::size_t i = begin; i < begin + segment; ++i) out[i] = mask.active(i) ? result : in[i];
  }
}

}  // namespace

void execute_reduction(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses) {
  if (instruction.op == Op::V_RED_SUM_SEG || instruction.op == Op::V_RED_MAX_SEG)
    return reduce_sections(state, instruction, accesses);
  const Bf16* row = state.vram.data() + accesses[0].base;
  const auto n = static_cast<std::size_t>(state.config.vlen);
  const std::uint32_t rd = instruction.get(Field::kRd);
  if (instruction.op == Op::V_RED_MAX_IDX) {
    // rs3 is the register of the running maximum here, not a mask.
    const std::uint32_t register_max = instruction.get(Field::kRs3);
    const Maximum best = maximum(LaneMask(state, Instruction{}), row, 0, n);
    if (order_key(best.value) <= order_key(state.fp(register_max))) return;
    state.set_gp(rd, state.gp[instruction.get(Field::kRs2)] + static_cast<std::uint32_t>(best.lane));
    state.set_fp(register_max, best.value);
    return;
  }
  if (rd == 0) return;
  const LaneMask mask(state, instruction);
  if (instruction.op == Op::V_RED_MAX) {
    if (const Maximum best = maximum(mask, row, 0, n); best.found) state.set_fp(rd, bf16_max(state.fp(rd), best.value));
    return;
  }
  std::vector<float> sums = active_values(state, mask, row);
  add_tree(sums, n);
  const float total = state.fp_accumulator[rd] + sums[0];
  state.fp_accumulator[rd] = state.config.bf16_sums ? bf16_to_f32(f32_to_bf16(total)) : total;
}

}  // namespace dllm::npu
