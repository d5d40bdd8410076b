#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace dllm {

/// The size of a step of equal sequences. Rows, keys and scored rows are those of each.
struct StepSize {
  std::int64_t sequences = 1;
  std::int64_t rows = 0;     ///< the last of the sequence's positions
  std::int64_t keys = 0;     ///< positions that a row sees
  std::int64_t scored = -1;  ///< of the rows, the last; -1: all
  std::int64_t scored_rows() const { return scored < 0 ? rows : scored; }
  StepShape shape() const { return {.rows = sequences * rows, .scored = sequences * scored_rows()}; }
};

}  // namespace dllm
