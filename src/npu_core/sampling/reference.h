#pragma once

#include <cstdint>
#include <vector>

#include "npu_core/machine/state.h"
#include "npu_core/sampling/kernel.h"

namespace dllm::npu {

/// The inputs of a sampling program.
struct SamplingInputs {
  std::vector<float> logits;            ///< [batch][block][vocab]
  std::vector<std::uint8_t> undecided;  ///< [batch][block]
  std::vector<std::uint32_t> tokens;    ///< [batch][block]
  std::vector<std::uint32_t> counts;    ///< [steps][batch]
  // Of draws: counters (base/rng.h), and a token that is never drawn.
  std::uint64_t seed = 0;
  std::uint32_t first_step = 0, except = 0xffffffffu;
  std::vector<std::uint32_t> positions, streams;  ///< [batch][block]
};

/// Normal logits with a clear winner for some positions, many ties for others; about three quarters undecided.
SamplingInputs random_sampling_inputs(const SamplingShape& shape, std::uint64_t seed);

struct SamplingOutputs {
  std::vector<std::uint32_t> tokens, predicted;  ///< [batch][block]
  std::vector<std::uint16_t> confidences;        ///< [block] of the last item, BF16
  std::vector<std::uint8_t> undecided;           ///< [batch][block]
};

/// Quantizes the logits into HBM, pads them, and fills INT_MEM. For the published kernel, `later` contains the masks of
/// later steps, which come from the host: [step - 1][batch][block].
void load_sampling(const SamplingKernel& kernel, const SamplingInputs& inputs,
                   const std::vector<std::vector<std::uint8_t>>& later, MachineState& state);

SamplingOutputs read_sampling(const SamplingKernel& kernel, const MachineState& state);

/// The same by plain loops over positions: BF16 after each operation, FP32 sums in the order of the unit's tree, an
/// arg-max that prefers the first, and a stable sort by confidence. `after_step`, if not null, gets the undecided
/// positions after each step.
SamplingOutputs sample_plainly(const SamplingKernel& kernel, const SamplingInputs& inputs,
                               std::vector<std::vector<std::uint8_t>>* after_step = nullptr);

}  // namespace dllm::npu
