#include <vector>

#include "base/to_size.h"
#include "npu_core/machine/vector_unit.h"

namespace dllm::npu {
namespace {

/// Adds adjacent pairs until every section of `segment` lanes is one value: sums[s] of section s.
void add_tree(std::vector<float>& sums, std::size_t segment) {
  for (std::size_t n = sums.size(); segment > 1; segment /= 2, n /= 2)
    for (std::size_t i = 0; i < n / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
}

std::vector<float> active_values(const MachineState& state, const LaneMask& mask, const Bf16* row) {
  std::vector<float> values(to_size(state.config.vlen));
  const LaneFormat lanes = state.config.lanes;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = mask.active(i) ? lane_to_f32(lanes, row[i]) : 0.0f;
  return values;
}

struct Maximum {
  bool found = false;
  Bf16 value = 0;  ///< minus infinity if no lane is active
  std::size_t lane = 0;
};

/// The first of the largest active lanes in [begin, end).
Maximum maximum(const MachineState& state, const LaneMask& mask, const Bf16* row, std::size_t begin, std::size_t end) {
  Maximum best;
  best.value = lane_negated(lane_infinity(state.config.lanes));
  for (std::size_t i = begin; i < end; ++i)
    if (mask.active(i) && (!best.found || order_key(row[i]) > order_key(best.value))) best = {true, row[i], i};
  return best;
}

template <Op op>
bool reduce_sections(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const LaneMask mask(state, instruction);
  const Bf16* in = state.vram.data() + accesses[0].base;
  Bf16* out = state.vram.data() + accesses[1].base;
  const auto n = to_size(state.config.vlen);
  const std::size_t segment = state.control(Csr::kSegmentLength);
  std::vector<float> sums;
  if (op == Op::V_RED_SUM_SEG) {
    sums = active_values(state, mask, in);
    add_tree(sums, segment);
  }
  for (std::size_t begin = 0; begin < n; begin += segment) {
    const Bf16 result = sums.empty() ? maximum(state, mask, in, begin, begin + segment).value
                                     : result_to_lane(state.config.lanes, sums[begin / segment]);
    for (std::size_t i = begin; i < begin + segment; ++i) out[i] = mask.active(i) ? result : in[i];
  }
  return true;
}

bool maximum_with_index(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  // Here rs3 is the register of the running maximum, not a mask.
  const std::uint32_t register_max = instruction.get(Field::kRs3);
  const Maximum best = maximum(state, LaneMask(state, Instruction{}), state.vram.data() + accesses[0].base, 0,
                               to_size(state.config.vlen));
  if (order_key(best.value) <= order_key(state.fp(register_max))) return true;
  state.set_gp(instruction.get(Field::kRd),
               state.gp[instruction.get(Field::kRs2)] + static_cast<std::uint32_t>(best.lane));
  state.set_fp(register_max, best.value);
  return true;
}

bool reduce_maximum(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const std::uint32_t rd = instruction.get(Field::kRd);
  const Maximum best =
      maximum(state, LaneMask(state, instruction), state.vram.data() + accesses[0].base, 0, to_size(state.config.vlen));
  if (best.found) state.set_fp(rd, bf16_max(state.fp(rd), best.value));
  return true;
}

bool reduce_sum(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const std::uint32_t rd = instruction.get(Field::kRd);
  if (rd == 0) return true;
  std::vector<float> sums = active_values(state, LaneMask(state, instruction), state.vram.data() + accesses[0].base);
  add_tree(sums, sums.size());
  const float total = static_cast<float>(state.fp_accumulator[rd]) + sums[0];
  const LaneFormat lanes = state.config.lanes;
  state.fp_accumulator[rd] = static_cast<double>(
      state.config.bf16_sums || total != total ? lane_to_f32(lanes, result_to_lane(lanes, total)) : total);
  return true;
}

constexpr Semantics kReductionsSemantics[] = {
    {Op::V_RED_SUM, reduce_sum},
    {Op::V_RED_MAX, reduce_maximum},
    {Op::V_RED_SUM_SEG, reduce_sections<Op::V_RED_SUM_SEG>},
    {Op::V_RED_MAX_SEG, reduce_sections<Op::V_RED_MAX_SEG>},
    {Op::V_RED_MAX_IDX, maximum_with_index},
    {Op::V_RED_DRAW, draw},
};

}  // namespace

std::span<const Semantics> reduction_semantics() { return kReductionsSemantics; }

}  // namespace dllm::npu
