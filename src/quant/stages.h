#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"

namespace dllm {

/// The operators up to a matrix product, and the weights that multiply its input.
struct CalibrationStage {
  std::int64_t first = 0, end = 0;  ///< operators
  ValueId input = kNoId;
  std::vector<WeightId> weights;
  std::vector<ValueId> live;  ///< values that operators from `end` on read, ascending
  /// What the product is added to, if there is one product and its result is only added to a live value: the residual
  /// stream.
  ValueId residual = kNoId;
  /// A stage for itself, whose weights are gate, up and down: `input` has the rows of all experts, and the choice of
  /// experts is live.
  std::optional<op::Experts> experts{};
};

/// A graph cut before each product that has another input than the one before, and before all experts. Error:
/// kUnsupported, if a cut is between the store of K and V and the attention that reads them.
Expected<std::vector<CalibrationStage>> calibration_stages(const Graph& graph);

}  // namespace dllm
