#include <algorithm>
#include <cmath>
#include <vector>

#include "base/to_size.h"
#include "npu_core/machine/vector_unit.h"

namespace dllm::npu {
namespace {

bool prefix_sum(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const Bf16* in = state.vram.data() + accesses[0].base;
  Bf16* out = state.vram.data() + accesses[1].base;
  const LaneMask mask(state, instruction);
  const LaneFormat lanes = state.config.lanes;
  float sum = 0.0f;
  for (std::size_t i = 0; i < to_size(state.config.vlen); ++i) {
    if (mask.active(i)) sum += lane_to_f32(lanes, in[i]);
    out[i] = mask.active(i) ? result_to_lane(lanes, sum) : in[i];
  }
  return true;
}

/// A copy, because source and target may be the same row.
std::vector<Bf16> source_row(const MachineState& state, const ResolvedAccesses& accesses) {
  const Bf16* in = state.vram.data() + accesses[0].base;
  return {in, in + state.config.vlen};
}

bool shift(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const std::vector<Bf16> in = source_row(state, accesses);
  Bf16* out = state.vram.data() + accesses[1].base;
  const std::size_t n = in.size(), amount = state.gp[instruction.get(Field::kRs2)];
  const std::uint32_t mode = instruction.get(Field::kFunct);
  const std::size_t section = mode == 2 ? state.control(Csr::kSegmentLength) : n;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t start = i - i % section, lane = i % section;
    if (mode == 0)
      out[i] = i >= amount ? in[i - amount] : Bf16{0};
    else
      out[i] = in[start + (lane + section - amount % section) % section];
  }
  return true;
}

bool hadamard(MachineState& state, const Instruction&, const ResolvedAccesses& accesses, Trap&) {
  const std::vector<Bf16> in = source_row(state, accesses);
  Bf16* out = state.vram.data() + accesses[1].base;
  const std::size_t n = in.size(), section = state.control(Csr::kSegmentLength);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = lane_to_f32(state.config.lanes, in[i]);
  for (std::size_t distance = 1; distance < section; distance *= 2)
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & distance) != 0) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  const float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(section)));
  for (std::size_t i = 0; i < n; ++i) out[i] = result_to_lane(state.config.lanes, x[i] * norm);
  return true;
}

constexpr Semantics kPermutationsSemantics[] = {
    {Op::V_PS_V, prefix_sum},
    {Op::V_SHFT_V, shift},
    {Op::C_HADAMARD_TRANSFORM, hadamard},
};

}  // namespace

std::span<const Semantics> permutation_semantics() { return kPermutationsSemantics; }

}  // namespace dllm::npu
