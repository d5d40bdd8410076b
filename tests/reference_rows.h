#pragma once

#include <vector>

#include "backend/backend.h"

namespace dllm::test {

using Matrix = std::vector<std::vector<double>>;  // [row][column]

struct ReferenceCache : KvCache {
  explicit ReferenceCache(Position capacity) : KvCache(capacity) {}
  using KvCache::record;
  std::vector<Matrix> k, v;  // [layer][position][column]
};

/// Everything one pass needs to know about a row.
struct RowRef {
  const SequenceStep* step;
  PlanRow row;
  const ShadowRow* shadow = nullptr;  ///< or it is one of the plan's rows
};

}  // namespace dllm::test
