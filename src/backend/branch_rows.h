#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/types.h"

namespace dllm {

/// How branches of a batch get the rows that they share, for backends whose caches cannot read each other's memory: a
/// branch then has a copy of each.
struct BranchRows {
  /// Rows that no step of the batch writes: copied before the pass.
  struct Copy {
    const KvCache* from = nullptr;
    KvCache* to = nullptr;
    PositionRange rows;
  };
  /// A row that the pass writes to the cache that `to` shows it of: stored in both, so that the branch sees it layer by
  /// layer.
  struct Store {
    std::size_t step = 0;  ///< index into the batch
    std::size_t row = 0;   ///< index into the rows of its plan
    KvCache* to = nullptr;
  };
  std::vector<Copy> copies{};
  std::vector<Store> stores{};

  bool empty() const { return copies.empty() && stores.empty(); }
};

/// Every row that a branch of the batch holds, has not written and sees in this pass. Precondition: the batch's rows
/// are recorded.
BranchRows branch_rows(std::span<const SequenceStep> batch);

}  // namespace dllm
