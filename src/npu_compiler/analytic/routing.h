#pragma once

#include <cstdint>

#include "npu_core/assembler/choices.h"

namespace dllm::npu {

/// The load that a step's rows cause in a layer of experts.
struct ExpertLoad {
  double touched = 0;  ///< experts that at least one row chose: their weights are read
  double blocks = 0;   ///< of `block` rows, the last one of each expert padded, summed over the experts
};

/// `rows` rows that choose `used` of `experts` each. Random choice gives expectations: an expert's rows are
/// Binomial(rows, used / lanes), so touched = lanes (1 - (1 - used / lanes)^rows). Rooflines often use the bound
/// min(experts, rows used), which balanced choice reaches.
/// The first alone, which takes no time.
double experts_touched(std::int64_t rows, std::int64_t experts, std::int64_t used, const ChoiceAssumption& assumption);
ExpertLoad expert_load(std::int64_t rows, std::int64_t experts, std::int64_t used, std::int64_t block,
                       const ChoiceAssumption& assumption);

}  // namespace dllm::npu
