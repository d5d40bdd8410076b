#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/graph.h"
#include "npu_core/assembler/choices.h"

namespace dllm::npu {

/// What a step's operators read beside their values.
struct StepReads {
  std::int64_t sequences = 1, keys = 0;  ///< each row sees `keys` positions of its sequence
  ChoiceAssumption choices = {};         ///< how rows choose experts
  std::int64_t parts = 1;                ///< that the step runs in, each of which reads its experts
};

/// What an operator multiplies, in elements, whatever a device stores: the readers for this processor, GPUs and NPUs
/// price the same counts.
struct Products {
  std::int64_t macs = 0;
  double weights = 0;  ///< of matrices, each read once; of experts those that rows chose
  double cached = 0;   ///< of K and V
};
/// Of Linear, Attention, Experts and ScoreHead; none of the others.
Products products_of(const Graph& graph, const Op& op, const StepReads& reads);

/// A layer of experts: `rows` rows that choose `used` of `count` each; gate and up {width, inner}, down {inner, out}.
struct ExpertProducts {
  std::int64_t rows = 0, used = 0, count = 0, width = 0, inner = 0, out = 0;
  std::int64_t each() const { return (2 * width + out) * inner; }  ///< weights of an expert
};
ExpertProducts expert_products(const Graph& graph, const op::Experts& o);

/// Keys that the rows of a sequence may see: those of a window are counted from its first row.
inline std::int64_t seen_keys(const op::Attention& o, std::int64_t rows, std::int64_t keys) {
  return o.window > 0 ? std::min(keys, rows + o.window - 1) : keys;
}

}  // namespace dllm::npu
