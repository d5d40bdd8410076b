#pragma once

#include <cstdint>

#include "npu/assembler/choices.h"

namespace dllm::npu {

/// What a step's rows make of a layer of experts.
struct ExpertLoad {
  double touched = 0;  ///< experts that some row chose: their weights are read
  double blocks = 0;   ///< of `block` rows, the last one of each expert padded, summed over the experts
};

/// `rows` that choose `used` of `experts` each. With random choice, expectations: an expert's rows are
/// Binomial(rows, used / lanes), so touched = lanes (1 - (1 - used / lanes)^rows). Rooflines often bound it by
/// min(experts, rows used), which is what balanced choice gives.
ExpertLoad expert_load(std::int64_t rows, std::int64_t experts, std::int64_t used, std::int64_t block,
                       const ChoiceAssumption& assumption);

}  // namespace dllm::npu
