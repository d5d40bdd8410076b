#include <algorithm>
#include <vector>

#include "npu_core/machine/vector_unit.h"

namespace dllm::npu {
namespace {

/// The `top` candidates in descending order; ties go to the lower lane.
void select_top(std::vector<std::uint32_t>& candidates, std::size_t top, const Bf16* values) {
  top = std::min(top, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(top), candidates.end(),
                    [values](std::uint32_t a, std::uint32_t b) {
                      const auto ka = order_key(values[a]), kb = order_key(values[b]);
                      return ka != kb ? ka > kb : a < b;
                    });
  candidates.resize(top);
}

/// Softmax over the selected logits in the unit's own arithmetic: differences, exponentials and products of lanes, FP32
/// sum in descending order, one reciprocal of the rounded sum.
bool route(MachineState& state, const Instruction&, const ResolvedAccesses& accesses, Trap&) {
  const Bf16* logits = state.vram.data() + accesses[0].base;
  const MemoryRange& weights = accesses[1];
  std::vector<std::uint32_t> experts(accesses.elements);
  for (std::uint32_t i = 0; i < experts.size(); ++i) experts[i] = i;
  select_top(experts, weights.length, logits);
  const LaneFormat lanes = state.config.lanes;
  const bool half = lanes == LaneFormat::kF16;
  std::vector<Bf16> exponentials;
  float sum = 0.0f;
  for (const std::uint32_t expert : experts) {
    const Bf16 top = logits[experts.front()];
    exponentials.push_back(half ? f16_exp(f16_sub(logits[expert], top)) : bf16_exp(bf16_sub(logits[expert], top)));
    sum += lane_to_f32(lanes, exponentials.back());
  }
  const Bf16 rounded = f32_to_lane(lanes, sum), factor = half ? f16_reciprocal(rounded) : bf16_reciprocal(rounded);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    state.fp_mem[weights.base + i] = half ? f16_mul(exponentials[i], factor) : bf16_mul(exponentials[i], factor);
    state.int_mem[accesses[2].base + i] = experts[i];
  }
  return true;
}

bool top_mask(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const Bf16* values = state.vram.data() + accesses[0].base;
  const Bf16* mask = state.vram.data() + accesses[1].base;
  const MemoryRange& target = accesses[2];
  std::vector<std::uint32_t> candidates;
  for (std::uint32_t i = 0; i < accesses.elements; ++i)
    if ((mask[i] & 0x7fff) != 0) candidates.push_back(i);
  select_top(candidates, state.gp[instruction.get(Field::kRs3)], values);
  // Not earlier: the target may be one of the sources. Rows are VLEN long and adjacent.
  Bf16* out = state.vram.data() + target.base;
  std::fill_n(out, target.total(), Bf16{0});
  for (const std::uint32_t lane : candidates) out[lane] = lane_one(state.config.lanes);
  return true;
}

bool select_integers(MachineState& state, const Instruction&, const ResolvedAccesses& accesses, Trap&) {
  const std::uint32_t* chosen = state.int_mem.data() + accesses[0].base;
  const std::uint32_t* other = state.int_mem.data() + accesses[1].base;
  const Bf16* mask = state.vram.data() + accesses[2].base;
  std::vector<std::uint32_t> result(accesses.elements);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = (mask[i] & 0x7fff) != 0 ? chosen[i] : other[i];
  std::copy(result.begin(), result.end(), state.int_mem.data() + accesses[3].base);
  return true;
}

constexpr Semantics kSelectionsSemantics[] = {
    {Op::V_TOPK, route},
    {Op::V_TOPK_MASK, top_mask},
    {Op::V_SELECT_INT, select_integers},
};

}  // namespace

std::span<const Semantics> selection_semantics() { return kSelectionsSemantics; }

}  // namespace dllm::npu
